#include "pinned_download.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pinned_pool.h"

namespace mtrain::cuda {

/// Pieces in use: given back also when the device fails, after which nobody uses them any more.
struct PinnedDownload::Taken {
  explicit Taken(Pieces& pool) : pieces(pool) {
    while (count < data.size() && (data[count] = pieces.take())) ++count;
  }
  ~Taken() {
    for (size_t i = 0; i < count; ++i) {
      try {
        pieces.give(data[i]);
      } catch (...) {  // the failure that is under way says more
        return;
      }
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  Pieces& pieces;
  std::array<void*, 2> data{};
  size_t count = 0;
};

PinnedDownload::PinnedDownload(DeviceApi& api, Pieces pieces)
    : api_(api), pieces_(std::move(pieces)), events_{api.make_event(), api.make_event()} {}

PinnedDownload::~PinnedDownload() {
  for (EventHandle event : events_) api_.free_event(event);
}

void PinnedDownload::run(void* to, const void* from, size_t bytes, StreamHandle stream) {
  constexpr size_t kPiece = PinnedPool::kPiece;
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  Taken taken(pieces_);
  if (taken.count == 0) {  // no page-locked memory
    api_.copy_to_host(to, from, bytes, stream);
    api_.record(events_[0], stream);
    return api_.wait_on_host(events_[0]);
  }
  auto slot_at = [&](size_t at) { return at / kPiece % taken.count; };
  for (size_t asked = 0, arrived = 0; arrived < bytes;) {
    for (; asked < bytes && asked - arrived < taken.count * kPiece; asked += std::min(kPiece, bytes - asked)) {
      api_.copy_to_host(taken.data[slot_at(asked)], source + asked, std::min(kPiece, bytes - asked), stream);
      api_.record(events_[slot_at(asked)], stream);
    }
    size_t part = std::min(kPiece, bytes - arrived);
    api_.wait_on_host(events_[slot_at(arrived)]);
    std::memcpy(target + arrived, taken.data[slot_at(arrived)], part);
    arrived += part;
  }
}

}  // namespace mtrain::cuda
