#include "mtrain/comm/pending.h"

namespace mtrain {

Pending::Work::~Work() = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    release();
    work_ = std::move(other.work_);
  }
  return *this;
}

Pending::~Pending() { release(); }

void Pending::release() noexcept {
  if (work_) work_->drop();
  work_.reset();
}

bool Pending::done() {
  if (!work_) return true;
  // Taken out first, so that nothing is left to drop after an exception.
  auto work = std::move(work_);
  if (work->done()) return true;
  work_ = std::move(work);
  return false;
}

void Pending::wait() {
  if (auto work = std::move(work_)) work->wait();
}

}  // namespace mtrain
