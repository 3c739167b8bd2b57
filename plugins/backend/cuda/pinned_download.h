// PinnedDownload: copies device memory to any host memory through two page-locked buffers; the
// device fills one while the host empties the other. A direct copy to pageable memory would be
// staged by the driver, and slower. It has its own buffers, because those of PinnedPool belong to
// the rank's thread, whose stream may be recorded. For one thread at a time; the DeviceApi must
// outlive it.
#pragma once
#include <array>
#include <cstddef>

#include "device_api.h"

namespace mtrain::cuda {

class PinnedDownload {
 public:
  static constexpr size_t kPiece = size_t{4} << 20;

  /// Allocates two buffers; one or none if the host has no more page-locked memory.
  explicit PinnedDownload(DeviceApi& api);
  /// REQUIRES: the device has completed the work of run().
  ~PinnedDownload();
  PinnedDownload(const PinnedDownload&) = delete;
  PinnedDownload& operator=(const PinnedDownload&) = delete;

  /// Copies after the work that `stream` was given; all data has arrived on return.
  void run(void* to, const void* from, size_t bytes, StreamHandle stream);

 private:
  DeviceApi& api_;
  std::array<void*, 2> pieces_{};
  size_t count_ = 0;
  std::array<EventHandle, 2> events_;  // recorded after the copy into each buffer
};

}  // namespace mtrain::cuda
