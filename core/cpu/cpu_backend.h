// The CPU backend: always present, and the oracle of every other backend.
#pragma once
#include <memory>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Makes the CPU backend. `threads` <= 0: as many as the machine (affinity mask, cgroup quota,
/// OMP_NUM_THREADS) allows.
MT_API std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

}  // namespace mtrain
