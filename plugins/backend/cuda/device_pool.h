// DevicePool: device memory of one rank, cut from large segments that the driver is asked for
// rarely (cudaMalloc waits for the whole device), and reused in the order of streams. A block that
// its own stream gives back is free at once for that stream: what runs there later runs after.
// Another stream gets it only when an event says that the first one is done with it. For one thread
// at a time; owns the segments, not the streams.
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
    size_t in_use = 0, peak = 0;  // bytes handed out, and the most ever
    size_t reserved = 0;          // bytes held from the driver
    uint64_t driver_calls = 0;    // cudaMalloc and cudaFree; constant in the steady state
    uint64_t crossings = 0;       // blocks that went from one stream to another
  };

  explicit DevicePool(DeviceApi& api);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  /// At least `bytes` aligned to 512, for work on `stream`; null when the device has no more, also
  /// after giving back what is cached.
  void* take(size_t bytes, StreamHandle stream);
  /// Gives a block back after the work that `stream` has been given so far. It may be another
  /// stream than take()'s: the block then returns to the one that took it once that work is done.
  void give(void* data, StreamHandle stream);
  /// Gives segments back to the driver that nothing is taken from.
  void trim();

  const Figures& figures() const { return figures_; }
  /// Bytes of the block at `data`. REQUIRES: taken and not given back.
  size_t block_bytes(void* data) const;

  /// What a request is rounded up to: multiples of 512 bytes up to 1 MiB, then eighths of a power
  /// of two.
  static size_t rounded(size_t bytes);
  /// What the driver is asked for where a block of `bytes` finds no room: 2 MiB, 32 MiB, or the
  /// block itself.
  static size_t segment_size(size_t bytes);

 private:
  struct Segment;
  struct Block;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeList = std::set<Block*, BySize>;
  struct Waiting {  // given back by another stream than its own
    Block* block;
    EventHandle event;
  };

  Block* find_free(size_t bytes, StreamHandle stream);
  Block* new_segment(size_t bytes, StreamHandle stream);
  Block* steal(size_t bytes, StreamHandle stream);
  void cut(Block* block, size_t bytes);
  void release(Block* block);
  Block* join(Block* block, Block* next);
  void collect(bool wait);
  EventHandle event();

  DeviceApi& api_;
  std::map<void*, std::unique_ptr<Block>> blocks_;  // all, by address
  std::map<StreamHandle, FreeList> free_;
  std::map<void*, size_t> segments_;
  std::deque<Waiting> waiting_;
  std::vector<EventHandle> events_;  // to be used again
  Figures figures_;
};

}  // namespace mtrain::cuda
