// The allocator of one Run: keeps freed blocks for reuse, so that in the steady state a step asks
// the system for nothing, and counts what memory is used for. For the rank's own thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/tensor/backend.h"
#include "mtrain/tensor/memory_use.h"

namespace mtrain {

class MT_API CachingAllocator {
 public:
  CachingAllocator(Backend& backend, Device device);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A block for use(). Before it fails it gives back what is cached; the failure's Error says what
  /// memory is held for.
  void* take(size_t bytes);
  /// REQUIRES: the use that was set when the block was taken.
  void give(void* data, size_t bytes, MemoryUse use);
  /// Memory that comes from elsewhere is counted with the rest, as held from the system too.
  void count(size_t bytes, MemoryUse use);
  void discount(size_t bytes, MemoryUse use);

  /// What blocks taken from now on are for.
  MemoryUse use() const { return use_; }
  void set_use(MemoryUse use) { use_ = use; }

  /// Bytes now in use, the most ever in use, and bytes held from the system.
  size_t in_use() const { return in_use_; }
  const MemoryBreakdown& held() const { return now_; }
  size_t peak() const { return peak_; }
  size_t reserved() const { return reserved_; }
  /// The most bytes ever held from the system, and what was in use when most was.
  size_t peak_reserved() const { return peak_reserved_; }
  const MemoryBreakdown& at_peak() const { return at_peak_; }
  /// How often the system was asked; constant in the steady state.
  uint64_t system_allocations() const { return system_allocations_; }

 private:
  size_t block_size(size_t bytes, MemoryUse use) const;
  void* from_system(size_t size);
  void add_in_use(size_t size, MemoryUse use);
  void release_cached();
  [[noreturn]] void throw_out_of_memory(const Error& error) const;

  Backend& backend_;
  Device device_;
  std::map<size_t, std::vector<void*>> free_;
  MemoryUse use_ = MemoryUse::other;
  MemoryBreakdown now_, at_peak_;
  size_t in_use_ = 0, peak_ = 0, reserved_ = 0, peak_reserved_ = 0;
  uint64_t system_allocations_ = 0;
};

/// Sets what memory is taken for within a scope.
class MemoryScope {
 public:
  MemoryScope(CachingAllocator& memory, MemoryUse use) : memory_(memory), before_(memory.use()) {
    memory.set_use(use);
  }
  ~MemoryScope() { memory_.set_use(before_); }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  CachingAllocator& memory_;
  MemoryUse before_;
};

}  // namespace mtrain
