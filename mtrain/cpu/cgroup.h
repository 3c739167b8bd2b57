// Limits that the control groups (versions 1 and 2) set for this process. The effective limit is
// the minimum over the process's group and all groups above it. `root` is "/" outside of tests.
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

#include "mtrain/base/export.h"

namespace mtrain::cpu {

/// The CPU limit in CPUs, such as 2.5; nothing if it is unlimited.
MT_API std::optional<double> cgroup_cpus(const std::filesystem::path& root);

struct CgroupMemory {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t limit = kNone;  // bytes
  uint64_t free = kNone;   // bytes of the limit that are unused; page cache counts as unused, since
                           // the system can reclaim it
};
MT_API CgroupMemory cgroup_memory(const std::filesystem::path& root);

}  // namespace mtrain::cpu
