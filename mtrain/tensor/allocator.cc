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
  ++takes_;
  if (found != free_.end()) found->second.last_use = takes_;
  if (found != free_.end() && !found->second.blocks.empty()) {
    block = found->second.blocks.back();
    found->second.blocks.pop_back();
  } else {
    if (usual_ > 0) make_room(size);
    block = from_system(size);
    ++system_allocations_;
    reserved_ += size;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
  }
  add_in_use(size, use_);
  return block;
}

/// Frees cached blocks of other sizes until `size` more bytes fit.
void CachingAllocator::make_room(size_t size) {
  const size_t most = std::max(usual_, peak_ / 8 * 9);
  while (reserved_ + size > most) {
    auto oldest = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (!at->second.blocks.empty() &&
          (oldest == free_.end() || at->second.last_use < oldest->second.last_use))
        oldest = at;
    if (oldest == free_.end()) return;
    backend_.deallocate(device_, oldest->second.blocks.back(), oldest->first);
    oldest->second.blocks.pop_back();
    reserved_ -= oldest->first;
  }
}

void CachingAllocator::limit_cache() {
  if (usual_ == 0 && backend_.pooled()) usual_ = std::max<size_t>(1, reserved_);
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
    free_[size].blocks.push_back(data);
  } else {
    reserved_ -= size;
    backend_.deallocate(device_, data, size);
  }
}

void CachingAllocator::release_cached() {
  for (auto& [size, cached] : free_)
    for (void* block : cached.blocks) {
      reserved_ -= size;
      backend_.deallocate(device_, block, size);
    }
  free_.clear();
}

}  // namespace mtrain
