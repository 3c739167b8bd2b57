#include "mtrain/train/background_writer.h"

#include <algorithm>

namespace mtrain {

BackgroundWriter::BackgroundWriter(SafetensorsWriter& file) : file_(file) {
  for (auto& piece : pieces_) piece.reserve(kPieceBytes);
  thread_ = std::thread([this] { work(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::vector<std::byte>& piece = pieces_[filled_ % kPieces];
    const auto part = bytes.first(std::min(bytes.size(), kPieceBytes - piece.size()));
    piece.insert(piece.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (piece.size() == kPieceBytes) pass_on();
  }
}

/// Gives the piece to the thread, and waits until the next one is free.
void BackgroundWriter::pass_on() {
  std::unique_lock lock(mutex_);
  ++filled_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failure_ || filled_ - written_ < kPieces; });
  if (failure_) std::rethrow_exception(failure_);
}

void BackgroundWriter::finish() {
  if (!pieces_[filled_ % kPieces].empty()) pass_on();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || filled_ == written_; });
    if (failure_) std::rethrow_exception(failure_);
  }
  file_.finish();
}

void BackgroundWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ended_ || filled_ > written_; });
    if (ended_) return;
    std::vector<std::byte>& piece = pieces_[written_ % kPieces];
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write(piece);
    } catch (...) {
      failure = std::current_exception();
    }
    piece.clear();
    lock.lock();
    failure_ = failure;
    ++written_;
    changed_.notify_all();
    if (failure_) return;
  }
}

}  // namespace mtrain
