// PinnedDownload: device memory to host memory of any kind through two page-locked pieces, one
// filled by the device while the other is emptied by the host. Straight into pageable memory the
// driver would stage it by itself, and slower. The pieces are its own: those of PinnedPool belong
// to the rank's thread, whose stream may be recorded. For one thread at a time; refers to the
// device's calls, which outlive it.
#pragma once
#include <array>
#include <cstddef>

#include "device_api.h"

namespace mtrain::cuda {

class PinnedDownload {
 public:
  static constexpr size_t kPiece = size_t{4} << 20;

  /// Takes two pieces; one, or none, where the host has no more page-locked memory to give.
  explicit PinnedDownload(DeviceApi& api);
  /// REQUIRES: the device has done what run() gave it.
  ~PinnedDownload();
  PinnedDownload(const PinnedDownload&) = delete;
  PinnedDownload& operator=(const PinnedDownload&) = delete;

  /// Behind what `stream` was given; all of it has arrived on return.
  void run(void* to, const void* from, size_t bytes, StreamHandle stream);

 private:
  DeviceApi& api_;
  std::array<void*, 2> pieces_{};
  size_t count_ = 0;
  std::array<EventHandle, 2> events_;  // behind the copy into each piece
};

}  // namespace mtrain::cuda
