#include "mtrain/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::cpu {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;

size_t meminfo_available() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  for (uint64_t kib = 0; in >> key >> kib; in.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (key == "MemAvailable:") return static_cast<size_t>(kib) * 1024;
  return std::numeric_limits<size_t>::max();
}

uint64_t read_number(const char* path, uint64_t otherwise) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : otherwise;
}

[[noreturn]] void throw_out_of_memory(size_t bytes, size_t free) {
  throw Error(ErrorClass::config,
              cat("out of memory: need ", human_bytes(bytes), " more, ", human_bytes(free), " free"),
              "use a machine with more memory, or end what else runs there");
}

}  // namespace

size_t free_memory() {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t limit = read_number("/sys/fs/cgroup/memory.max", kNone);
  uint64_t used = read_number("/sys/fs/cgroup/memory.current", 0);
  uint64_t group = limit == kNone ? kNone : limit - std::min(limit, used);
  return static_cast<size_t>(std::min<uint64_t>(meminfo_available(), group));
}

void* allocate_host(size_t bytes) {
  size_t align = bytes >= kHugeFrom ? kHugePage : 64;
  // A request beyond what is free would be granted and then end the process when touched, so it is refused
  // here.
  if (bytes >= kHugeFrom)
    if (size_t free = free_memory(); bytes > free) throw_out_of_memory(bytes, free);
  size_t rounded = (std::max<size_t>(bytes, 1) + align - 1) / align * align;
  void* data = std::aligned_alloc(align, rounded);
  if (data == nullptr) throw_out_of_memory(bytes, free_memory());
  if (bytes >= kHugeFrom)
    // Whole huge pages only: the rest of the last one would be memory that nobody asked for. Advice: a refusal changes
    // nothing but speed.
    madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void deallocate_host(void* data) {
  std::free(data);
}

}  // namespace mtrain::cpu
