// BackgroundWriter: writes a file on a thread of its own, so that the next bytes are read and
// converted meanwhile. Holds a few pieces of a megabyte. Refers to the file. For one thread.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {

class BackgroundWriter {
 public:
  explicit BackgroundWriter(SafetensorsWriter& file);
  /// Ends the thread. Data that is not written yet is lost, unless finish() has returned.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Takes the next bytes. Throws the error of an earlier write.
  void write(std::span<const std::byte> bytes);
  /// Waits until all is written, and finishes the file. Throws the error of any write.
  void finish();

 private:
  static constexpr size_t kPieces = 4, kPieceBytes = 1 << 20;
  void work();
  void pass_on();

  SafetensorsWriter& file_;
  std::vector<std::byte> pieces_[kPieces];
  std::mutex mutex_;
  std::condition_variable changed_;
  // Pieces `written_` to `filled_` - 1, modulo kPieces, wait to be written; the writer fills the
  // next one.
  size_t filled_ = 0, written_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace mtrain
