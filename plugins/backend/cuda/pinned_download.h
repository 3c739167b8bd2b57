// PinnedDownload: device memory to host memory of any kind through two page-locked pieces, one filled by the device while the
// other is emptied by the host. Straight into pageable memory the driver would stage it by itself, and slower. For one thread at a
// time; refers to the device's calls, which outlive it.
#pragma once
#include <array>
#include <cstddef>
#include <functional>

#include "device_api.h"

namespace mtrain::cuda {

class PinnedDownload {
 public:
  /// Where pieces of PinnedPool::kPiece bytes come from and go to. `take` may give null: then one piece does, or none.
  struct Pieces {
    std::function<void*()> take;
    std::function<void(void*)> give;
  };
  PinnedDownload(DeviceApi& api, Pieces pieces);
  ~PinnedDownload();
  PinnedDownload(const PinnedDownload&) = delete;
  PinnedDownload& operator=(const PinnedDownload&) = delete;

  /// Behind what `stream` was given; all of it has arrived on return.
  void run(void* to, const void* from, size_t bytes, StreamHandle stream);

 private:
  struct Taken;
  DeviceApi& api_;
  Pieces pieces_;
  std::array<EventHandle, 2> events_;  // behind the copy into each piece
};

}  // namespace mtrain::cuda
