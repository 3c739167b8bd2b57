#include "mtrain/tensor/allocator.h"

#include <algorithm>
#include <bit>

#include "mtrain/base/text.h"

namespace mtrain {

CachingAllocator::CachingAllocator(Backend& backend, Device device)
    : backend_(backend), device_(device) {}

CachingAllocator::~CachingAllocator() { release_cached(); }

// Rounds up to an eighth of a power of two: rounding wastes at most 12.5 %, and similar sizes share
// blocks. Blocks that live for the whole run are not rounded, since they are never reused.
size_t CachingAllocator::block_size(size_t bytes, MemoryUse use) const {
  constexpr size_t kSmallest = 256;
  if (!backend_.pooled()) return bytes;
  if (bytes <= kSmallest) return kSmallest;
  bool stays =
      use == MemoryUse::parameters || use == MemoryUse::gradients || use == MemoryUse::optimizer;
  size_t unit = stays ? kSmallest : std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + unit - 1) / unit * unit;
}

void* CachingAllocator::take(size_t bytes) {
  size_t size = block_size(bytes, use_);
  void* block = nullptr;
  auto found = free_.find(size);
  if (found != free_.end() && !found->second.empty()) {
    block = found->second.back();
    found->second.pop_back();
  } else {
    block = from_system(size);
    ++system_allocations_;
    reserved_ += size;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
  }
  add_in_use(size, use_);
  return block;
}

void CachingAllocator::add_in_use(size_t size, MemoryUse use) {
  in_use_ += size;
  now_[use] += size;
  if (in_use_ > peak_) peak_ = in_use_, at_peak_ = now_;
}

void CachingAllocator::add_external(size_t bytes, MemoryUse use) {
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  add_in_use(bytes, use);
}

void CachingAllocator::remove_external(size_t bytes, MemoryUse use) {
  reserved_ -= bytes;
  in_use_ -= bytes;
  now_[use] -= bytes;
}

void* CachingAllocator::from_system(size_t size) {
  try {
    return backend_.allocate(device_, size);
  } catch (const Error& error) {
    if (reserved_ == in_use_) throw_out_of_memory(error);
  }
  release_cached();
  try {
    return backend_.allocate(device_, size);
  } catch (const Error& error) {
    throw_out_of_memory(error);
  }
}

void CachingAllocator::throw_out_of_memory(const Error& error) const {
  std::string held = now_.total() == 0 ? "" : cat("; held so far: ", now_.text());
  throw Error(
      error.error_class(), cat(error.message(), " for ", name(use_), held),
      error.hint().empty() ? memory_advice(now_) : cat(memory_advice(now_), "; or ", error.hint()));
}

void CachingAllocator::give(void* data, size_t bytes, MemoryUse use) {
  size_t size = block_size(bytes, use);
  in_use_ -= size;
  now_[use] -= size;
  if (backend_.pooled()) {
    free_[size].push_back(data);
  } else {
    reserved_ -= size;
    backend_.deallocate(device_, data, size);
  }
}

void CachingAllocator::release_cached() {
  for (auto& [size, blocks] : free_)
    for (void* block : blocks) {
      reserved_ -= size;
      backend_.deallocate(device_, block, size);
    }
  free_.clear();
}

}  // namespace mtrain
