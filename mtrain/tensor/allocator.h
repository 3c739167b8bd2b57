// The caching allocator of one ExecutionContext: keeps freed blocks for reuse, so that steps in the
// steady state allocate nothing from the system, and counts memory by purpose. Owns its cached
// blocks. For the rank's own thread.
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

  /// Returns a block of at least `bytes`, counted under use(). When the system has no memory left,
  /// it first frees all cached blocks; if that does not suffice, the Error lists what memory is
  /// held for.
  void* take(size_t bytes);
  /// Returns a block to the cache. REQUIRES: `use` is the use under which the block was taken.
  void give(void* data, size_t bytes, MemoryUse use);
  /// Returns cached blocks to the system. Call it after a phase whose sizes do not occur again.
  void release_cached();
  /// Call it once steps have their usual sizes. From then on a size that has no cached block takes
  /// the place of the blocks that were unused for longest, instead of growing the cache: with sizes
  /// that vary from step to step, such as those of an expert's tokens, it would hold several times
  /// what a step needs.
  void limit_cache();
  /// Counts memory that was allocated elsewhere, as in use and as reserved from the system.
  void add_external(size_t bytes, MemoryUse use);
  void remove_external(size_t bytes, MemoryUse use);

  /// The purpose under which take() counts new blocks.
  MemoryUse use() const { return use_; }
  void set_use(MemoryUse use) { use_ = use; }

  /// Bytes in use now, by purpose; the maximum ever in use; bytes reserved from the system.
  size_t in_use() const { return in_use_; }
  const MemoryBreakdown& held() const { return now_; }
  size_t peak() const { return peak_; }
  size_t reserved() const { return reserved_; }
  /// The maximum ever reserved from the system; and the bytes by purpose at the time of peak().
  size_t peak_reserved() const { return peak_reserved_; }
  const MemoryBreakdown& at_peak() const { return at_peak_; }
  /// Number of allocations from the system; constant in the steady state.
  uint64_t system_allocations() const { return system_allocations_; }

 private:
  size_t block_size(size_t bytes, MemoryUse use) const;
  void* from_system(size_t size);
  void add_in_use(size_t size, MemoryUse use);
  [[noreturn]] void throw_out_of_memory(const Error& error) const;

  Backend& backend_;
  Device device_;
  struct FreeBlocks {
    std::vector<void*> blocks;
    uint64_t last_use = 0;  // by takes_
  };
  void make_room(size_t size);

  std::map<size_t, FreeBlocks> free_;  // by their size
  MemoryUse use_ = MemoryUse::other;
  MemoryBreakdown now_, at_peak_;
  size_t in_use_ = 0, peak_ = 0, reserved_ = 0, peak_reserved_ = 0;
  uint64_t system_allocations_ = 0, takes_ = 0;
  size_t usual_ = 0;  // bytes reserved at limit_cache(); 0: not called yet
};

/// Sets the purpose of new blocks within a scope.
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
