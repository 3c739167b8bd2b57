// The counters. This file itself is not counted: see CMakeLists.txt.
#include "growth/work.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace {
thread_local uint64_t t_work = 0;  // plain: nothing here may allocate
void count(size_t bytes) { t_work += 1 + bytes / 16; }
void* allocated(size_t bytes, size_t alignment) {
  count(bytes);
  void* memory = alignment == 0
                     ? std::malloc(bytes ? bytes : 1)
                     : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace

uint64_t mtrain::testing::work_done() { return t_work; }

// The linker's --wrap sends the calls of the program here.
extern "C" {
void* __real_memcpy(void*, const void*, size_t);
void* __real_memmove(void*, const void*, size_t);
void* __real_memset(void*, int, size_t);
int __real_memcmp(const void*, const void*, size_t);
void* __real_memchr(const void*, int, size_t);
size_t __real_strlen(const char*);

void __sanitizer_cov_trace_pc() { ++t_work; }
void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  count(bytes);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  count(bytes);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, size_t bytes) {
  count(bytes);
  return __real_memset(to, value, bytes);
}
int __wrap_memcmp(const void* a, const void* b, size_t bytes) {
  count(bytes);
  return __real_memcmp(a, b, bytes);
}
void* __wrap_memchr(const void* in, int value, size_t bytes) {
  void* found = __real_memchr(in, value, bytes);
  count(found ? static_cast<size_t>(static_cast<const char*>(found) - static_cast<const char*>(in))
              : bytes);
  return found;
}
size_t __wrap_strlen(const char* text) {
  size_t length = __real_strlen(text);
  count(length);
  return length;
}
}

void* operator new(size_t bytes) { return allocated(bytes, 0); }
void* operator new[](size_t bytes) { return allocated(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
