// PinnedPool: page-locked host memory through which uploads pass, so that the host does not wait
// for them. A piece is used again when the event recorded behind its copy says that the copy is
// done. For one thread at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "device_api.h"

namespace mtrain::cuda {

class PinnedPool {
 public:
  /// `limit`: bytes held at most; a request that finds no room within it waits for the oldest
  /// piece.
  PinnedPool(DeviceApi& api, size_t limit);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// The largest piece that is handed out; more goes in several.
  static constexpr size_t kPiece = size_t{4} << 20;

  /// kPiece bytes to write to; null when the host has no page-locked memory to give.
  void* take();
  /// The piece may be used again after the work that `stream` has been given so far.
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
  size_t next_ = 0;  // the one given longest ago
  uint64_t waits_ = 0;
};

}  // namespace mtrain::cuda
