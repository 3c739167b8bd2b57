#include "pinned_download.h"

#include <algorithm>
#include <cstring>

namespace mtrain::cuda {

PinnedDownload::PinnedDownload(DeviceApi& api)
    : api_(api), events_{api.make_event(), api.make_event()} {
  while (count_ < pieces_.size() && (pieces_[count_] = api.host_malloc(kPiece))) ++count_;
}

PinnedDownload::~PinnedDownload() {
  for (EventHandle event : events_) api_.free_event(event);
  for (size_t i = 0; i < count_; ++i) api_.host_free(pieces_[i]);
}

void PinnedDownload::run(void* to, const void* from, size_t bytes, StreamHandle stream) {
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  if (count_ == 0) {  // no page-locked memory
    api_.copy_to_host(to, from, bytes, stream);
    api_.record(events_[0], stream);
    return api_.wait_on_host(events_[0]);
  }
  auto slot_at = [&](size_t at) { return at / kPiece % count_; };
  for (size_t asked = 0, arrived = 0; arrived < bytes;) {
    for (; asked < bytes && asked - arrived < count_ * kPiece;
         asked += std::min(kPiece, bytes - asked)) {
      api_.copy_to_host(pieces_[slot_at(asked)], source + asked, std::min(kPiece, bytes - asked),
                        stream);
      api_.record(events_[slot_at(asked)], stream);
    }
    size_t part = std::min(kPiece, bytes - arrived);
    api_.wait_on_host(events_[slot_at(arrived)]);
    std::memcpy(target + arrived, pieces_[slot_at(arrived)], part);
    arrived += part;
  }
}

}  // namespace mtrain::cuda
