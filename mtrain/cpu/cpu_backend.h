// The CPU backend: always present, and the reference for every other backend. Stateless functions;
// thread-safe. The returned backend belongs to the caller.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Creates the CPU backend. `threads` <= 0: as many as the machine allows (affinity mask, cgroup
/// quota, OMP_NUM_THREADS).
MT_API std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

/// Settings that make a run with this dtype and thread count (0: the default) slower than necessary
/// on this machine: one line each, with the better setting.
MT_API std::vector<std::string> cpu_speed_notes(DType dtype, int64_t threads);

/// A description of the kernels that make_cpu_backend() selects on this machine: "kernels of level
/// v4".
MT_API std::string cpu_level();
/// The name of that level: "v4". Kernels of one level compute the same bits on every machine.
MT_API std::string cpu_level_name();
/// Whether this machine's processor supports a level, independent of MTRAIN_ISA.
MT_API bool cpu_has_level(std::string_view name);

}  // namespace mtrain
