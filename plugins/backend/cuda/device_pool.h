// DevicePool: device memory of one rank, allocated from the driver in large segments (cudaMalloc
// waits for the whole device) and reused in stream order. A block that is freed on its own stream
// is at once free for that stream, since later work on the stream runs later. Another stream gets
// the block only after an event shows that the first stream has finished with it. Blocks without a
// stream (a null handle) have no pending work, and every stream may take them. For one thread at a
// time; owns the segments, not the streams.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "device_api.h"

namespace mtrain::cuda {

class DevicePool {
 public:
  struct Figures {
    size_t in_use = 0, peak = 0;  // bytes handed out: now, and the maximum
    size_t reserved = 0;          // bytes held from the driver
    uint64_t driver_calls = 0;    // cudaMalloc and cudaFree; constant in the steady state
    uint64_t crossings = 0;       // blocks that moved from one stream to another
  };

  explicit DevicePool(DeviceApi& api);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  /// At least `bytes`, aligned to 512, for work on `stream`. Null if the device has no memory left,
  /// even after cached segments were freed.
  void* take(size_t bytes, StreamHandle stream);
  /// Frees a block after the work that `stream` has been given so far. It may differ from the
  /// stream of take(): then the block returns to that stream after the work is complete.
  void give(void* data, StreamHandle stream);
  /// Call it before a stream is destroyed, after its work is complete: its blocks no longer belong
  /// to a stream.
  void retire(StreamHandle stream);
  /// Returns unused segments to the driver.
  void trim();

  const Figures& figures() const { return figures_; }
  /// Bytes of the block at `data`. REQUIRES: taken and not given back.
  size_t block_bytes(void* data) const;

  /// The rounded size of a request: multiples of 512 bytes up to 1 MiB, eighths of a power of two
  /// up to 16 MiB, then multiples of 2 MiB.
  static size_t rounded(size_t bytes);
  /// The size of a new segment for a block of `bytes`: 2 MiB, 32 MiB, or the block rounded up to a
  /// multiple of 2 MiB.
  static size_t segment_size(size_t bytes);

 private:
  struct Segment;
  struct Block;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeList = std::set<Block*, BySize>;
  struct Waiting {  // freed on another stream than its own
    Block* block;
    EventHandle event;
  };

  Block* find_free(size_t bytes, StreamHandle stream);
  Block* new_segment(size_t bytes, StreamHandle stream);
  Block* steal(size_t bytes, StreamHandle stream);
  void split(Block* block, size_t bytes);
  void release(Block* block);
  Block* join(Block* block, Block* next);
  void collect(bool wait);
  EventHandle event();

  DeviceApi& api_;
  std::map<void*, std::unique_ptr<Block>> blocks_;  // all blocks, by address
  std::map<StreamHandle, FreeList> free_;
  std::map<void*, size_t> segments_;
  std::deque<Waiting> waiting_;
  std::vector<EventHandle> events_;  // for reuse
  Figures figures_;
};

}  // namespace mtrain::cuda
