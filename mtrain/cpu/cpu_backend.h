// The CPU backend: always present, and the oracle of every other backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Makes the CPU backend. `threads` <= 0: as many as the machine (affinity mask, cgroup quota,
/// OMP_NUM_THREADS) allows.
MT_API std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

/// What makes a run with this dtype and thread count (0: the default) slower on this machine than
/// it could be, a line each with the better setting.
MT_API std::vector<std::string> cpu_speed_notes(DType dtype, int64_t threads);

/// The kernels that make_cpu_backend() takes on this machine, in words: "kernels of level v4".
MT_API std::string cpu_level();
/// The name of their level: "v4". Kernels of one level compute the same bits on every machine.
MT_API std::string cpu_level_name();
/// Whether this machine's processor has a level, whatever MTRAIN_ISA says.
MT_API bool cpu_has_level(std::string_view name);

}  // namespace mtrain
