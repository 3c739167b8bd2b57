#include "mtrain/cpu/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/cpu/cgroup.h"

namespace mtrain::cpu {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;

size_t meminfo_available() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  for (uint64_t kib = 0; in >> key >> kib;
       in.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (key == "MemAvailable:") return static_cast<size_t>(kib) * 1024;
  return std::numeric_limits<size_t>::max();
}

[[noreturn]] void throw_too_little_free(size_t bytes, size_t free) {
  throw Error(
      ErrorClass::config,
      cat("out of memory: need ", human_bytes(bytes), " more, ", human_bytes(free), " free"),
      "use a machine with more memory, or end other programs on it");
}

/// The free memory does not explain the failure: the process has its own limit.
[[noreturn]] void throw_refused(size_t bytes) {
  rlimit space{};
  const bool limited = ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  throw Error(ErrorClass::config,
              cat("out of memory: ",
                  limited ? cat("the process is limited to ", human_bytes(space.rlim_cur),
                                " of address space, and ")
                          : "",
                  "the system cannot provide another ", human_bytes(bytes)),
              limited ? "raise the limit (ulimit -v)" : "use a machine with more memory");
}

}  // namespace

size_t free_memory() {
  return static_cast<size_t>(std::min<uint64_t>(meminfo_available(), cgroup_memory("/").free));
}

void* allocate_host(size_t bytes) {
  size_t align = bytes >= kHugeFrom ? kHugePage : 64;
  // The system would grant a request for more than the free memory and kill the process when it
  // touches the memory, so it is refused here.
  if (bytes >= kHugeFrom)
    if (size_t free = free_memory(); bytes > free) throw_too_little_free(bytes, free);
  size_t rounded = (std::max<size_t>(bytes, 1) + align - 1) / align * align;
  void* data = std::aligned_alloc(align, rounded);
  if (data == nullptr) throw_refused(bytes);
  if (bytes >= kHugeFrom)
    // Only whole huge pages: the rest of the last one would be memory that was not requested. This
    // is advice: a refusal only affects speed.
    madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void deallocate_host(void* data) { std::free(data); }

}  // namespace mtrain::cpu
