// PinnedPool: page-locked host memory for uploads, so that the host does not wait for them. A
// buffer is reused when the event after its copy shows that the copy is complete. Owns the buffers;
// for one thread at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "device_api.h"

namespace mtrain::cuda {

class PinnedPool {
 public:
  /// `limit`: the maximum number of bytes; a request beyond it waits for the oldest buffer.
  PinnedPool(DeviceApi& api, size_t limit);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// The size of a buffer; larger uploads use several.
  static constexpr size_t kPiece = size_t{4} << 20;

  /// kPiece bytes to write to; null if the host has no page-locked memory left.
  void* take();
  /// The buffer may be reused after the work that `stream` has been given so far.
  void give(void* piece, StreamHandle stream);

  size_t reserved() const { return pieces_.size() * kPiece; }
  uint64_t waits() const { return waits_; }

 private:
  struct Piece {
    void* data;
    EventHandle event;
    bool taken = false, pending = false;
  };
  DeviceApi& api_;
  size_t limit_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // the least recently used one
  uint64_t waits_ = 0;
};

}  // namespace mtrain::cuda
