#include "pinned_pool.h"

#include "mtrain/base/error.h"

namespace mtrain::cuda {

PinnedPool::PinnedPool(DeviceApi& api, size_t limit) : api_(api), limit_(limit) {}

PinnedPool::~PinnedPool() {
  for (Piece& p : pieces_) {
    api_.free_event(p.event);
    api_.host_free(p.data);
  }
}

void* PinnedPool::take() {
  // Buffers are used in rotation, so the next one is the oldest.
  for (size_t tried = 0; tried < pieces_.size(); ++tried) {
    Piece& p = pieces_[(next_ + tried) % pieces_.size()];
    if (p.taken || (p.pending && !api_.done(p.event))) continue;
    p.taken = true, p.pending = false;
    next_ = (next_ + tried + 1) % pieces_.size();
    return p.data;
  }
  if (reserved() + kPiece <= limit_ || pieces_.empty()) {
    if (void* data = api_.host_malloc(kPiece)) {
      pieces_.push_back({data, api_.make_event(), true});
      next_ = 0;
      return data;
    }
  }
  for (size_t tried = 0; tried < pieces_.size(); ++tried) {
    Piece& p = pieces_[(next_ + tried) % pieces_.size()];
    if (p.taken) continue;
    api_.wait_on_host(p.event);
    ++waits_;
    p.taken = true, p.pending = false;
    next_ = (next_ + tried + 1) % pieces_.size();
    return p.data;
  }
  return nullptr;
}

void PinnedPool::give(void* piece, StreamHandle stream) {
  for (Piece& p : pieces_) {
    if (p.data != piece) continue;
    api_.record(p.event, stream);
    p.taken = false, p.pending = true;
    return;
  }
  MT_CHECK(false, "a buffer that is not from this pool");
}

}  // namespace mtrain::cuda
