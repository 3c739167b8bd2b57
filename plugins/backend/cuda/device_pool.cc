#include "device_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {
constexpr size_t kUnit = 512, kMiB = size_t{1} << 20;
constexpr size_t kSmallSegment = 2 * kMiB, kSmallBlock = kMiB, kSegment = 32 * kMiB;
}  // namespace

struct DevicePool::Block {
  char* data;
  size_t bytes;
  StreamHandle stream;
  void* segment;  // start of its segment
  bool free = false;
};

bool DevicePool::BySize::operator()(const Block* a, const Block* b) const {
  return std::pair(a->bytes, a->data) < std::pair(b->bytes, b->data);
}

size_t DevicePool::rounded(size_t bytes) {
  size_t unit = bytes <= kSmallBlock ? kUnit : std::min(std::bit_floor(bytes) / 8, kSmallSegment);
  return std::max(kUnit, (bytes + unit - 1) / unit * unit);
}

size_t DevicePool::segment_size(size_t bytes) {
  if (bytes <= kSmallBlock) return kSmallSegment;
  if (bytes <= kSegment / 2) return kSegment;
  return (bytes + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
}

DevicePool::DevicePool(DeviceApi& api) : api_(api) {}

DevicePool::~DevicePool() {
  for (Waiting& w : waiting_) api_.free_event(w.event);
  for (EventHandle e : events_) api_.free_event(e);
  for (auto& [data, bytes] : segments_) api_.device_free(data);
}

EventHandle DevicePool::event() {
  if (events_.empty()) return api_.make_event();
  EventHandle e = events_.back();
  events_.pop_back();
  return e;
}

void* DevicePool::take(size_t bytes, StreamHandle stream) {
  size_t size = rounded(bytes);
  collect(false);
  Block* block = find_free(size, stream);
  if (!block && stream) block = find_free(size, nullptr);
  if (!block) block = steal(size, stream);
  if (!block) block = new_segment(size, stream);
  if (!block) {  // waits for blocks of other streams, and frees unused segments
    collect(true);
    block = find_free(size, stream);
    if (!block && stream) block = find_free(size, nullptr);
    if (!block) trim(), block = new_segment(size, stream);
    if (!block) return nullptr;
  }
  free_[block->stream].erase(block);
  block->free = false;
  split(block, size);  // the rest stays where it was
  block->stream = stream;
  figures_.in_use += block->bytes;
  figures_.peak = std::max(figures_.peak, figures_.in_use);
  return block->data;
}

// The smallest block that fits. Large blocks are preserved: a block that is more than twice as
// large is not split for a small request outside of its kind of segment.
DevicePool::Block* DevicePool::find_free(size_t bytes, StreamHandle stream) {
  FreeList& list = free_[stream];
  Block key{nullptr, bytes, nullptr, nullptr};
  auto found = list.lower_bound(&key);
  for (; found != list.end(); ++found) {
    bool small_block = bytes <= kSmallBlock,
         small_segment = segments_[(*found)->segment] == kSmallSegment;
    if (small_block == small_segment || (*found)->bytes < 2 * bytes) return *found;
  }
  return nullptr;
}

// A whole free segment of another stream moves to this stream, after the other one's work. Parts of
// a segment do not, since adjacent parts would belong to another stream.
DevicePool::Block* DevicePool::steal(size_t bytes, StreamHandle stream) {
  for (auto& [owner, list] : free_) {
    if (owner == stream || !owner) continue;
    for (Block* block : list) {
      if (block->bytes < bytes || block->bytes != segments_[block->segment] ||
          block->bytes != segment_size(bytes))
        continue;
      EventHandle e = event();
      api_.record(e, owner);
      api_.wait_on_stream(stream, e);
      events_.push_back(e);
      list.erase(block);
      block->stream = stream;
      free_[stream].insert(block);
      ++figures_.crossings;
      return block;
    }
  }
  return nullptr;
}

DevicePool::Block* DevicePool::new_segment(size_t bytes, StreamHandle stream) {
  size_t size = segment_size(bytes);
  ++figures_.driver_calls;
  void* data = api_.device_malloc(size);
  if (!data) return nullptr;
  figures_.reserved += size;
  segments_[data] = size;
  auto block = std::make_unique<Block>(Block{static_cast<char*>(data), size, stream, data, true});
  Block* made = block.get();
  free_[stream].insert(made);
  blocks_[data] = std::move(block);
  return made;
}

void DevicePool::split(Block* block, size_t bytes) {
  size_t rest = block->bytes - bytes;
  if (rest < (segments_[block->segment] == kSmallSegment ? kUnit : kSmallBlock)) return;
  block->bytes = bytes;
  auto tail = std::make_unique<Block>(
      Block{block->data + bytes, rest, block->stream, block->segment, true});
  free_[block->stream].insert(tail.get());
  blocks_[tail->data] = std::move(tail);
}

void DevicePool::give(void* data, StreamHandle stream) {
  auto found = blocks_.find(data);
  MT_CHECK(found != blocks_.end() && !found->second->free, "freed memory is not from this pool");
  Block* block = found->second.get();
  figures_.in_use -= block->bytes;
  if (!block->stream) block->stream = stream;
  if (stream == block->stream) return release(block);
  EventHandle e = event();
  api_.record(e, stream);
  waiting_.push_back({block, e});
}

void DevicePool::retire(StreamHandle stream) {
  for (auto& [data, block] : blocks_)
    if (!block->free && block->stream == stream) block->stream = nullptr;
  FreeList list = std::exchange(free_[stream], {});
  free_.erase(stream);
  for (Block* block : list) block->stream = nullptr, block->free = false;
  for (Block* block : list) release(block);
}

DevicePool::Block* DevicePool::join(Block* block, Block* next) {
  free_[next->stream].erase(next);
  block->bytes += next->bytes;
  blocks_.erase(next->data);
  return block;
}

void DevicePool::release(Block* block) {
  block->free = true;
  auto at = blocks_.find(block->data);
  auto joins = [&](const Block* other) {
    return other->free && other->segment == block->segment && other->stream == block->stream;
  };
  if (auto next = std::next(at); next != blocks_.end() && joins(next->second.get()))
    join(block, next->second.get());
  if (at != blocks_.begin())
    if (Block* before = std::prev(at)->second.get(); joins(before)) {
      free_[before->stream].erase(
          before);  // the set is ordered by size, so erase it before the size changes
      before->bytes += block->bytes;
      blocks_.erase(at);
      block = before;
    }
  free_[block->stream].insert(block);
}

void DevicePool::collect(bool wait) {
  for (size_t n = waiting_.size(); n > 0; --n) {
    Waiting w = waiting_.front();
    waiting_.pop_front();
    if (wait) api_.wait_on_host(w.event);
    if (wait || api_.done(w.event)) {
      events_.push_back(w.event);
      release(w.block);
    } else {
      waiting_.push_back(w);
    }
  }
}

void DevicePool::trim() {
  for (auto& [owner, list] : free_)
    for (auto it = list.begin(); it != list.end();) {
      Block* block = *it;
      if (block->bytes != segments_[block->segment]) {
        ++it;
        continue;
      }
      it = list.erase(it);
      figures_.reserved -= block->bytes;
      ++figures_.driver_calls;
      void* data = block->data;
      segments_.erase(data);
      blocks_.erase(data);
      api_.device_free(data);
    }
}

size_t DevicePool::block_bytes(void* data) const {
  auto found = blocks_.find(data);
  MT_CHECK(found != blocks_.end() && !found->second->free, "no block that is in use");
  return found->second->bytes;
}

}  // namespace mtrain::cuda
