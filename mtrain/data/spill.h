// Spill: a growing array of numbers that keeps only a small part in memory; the rest is in an
// unnamed file, which the system removes when the process ends for any reason. It is written
// sequentially, then read sequentially. Owns its file. Not synchronised: one thread at a time.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

/// The untyped part.
class MT_API SpillFile {
 public:
  /// `folder`: the folder of the unnamed file, which is created when it is needed.
  explicit SpillFile(fs::path folder) : folder_(std::move(folder)) {}
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  /// Error(io) when the disk is full or fails.
  void append(std::span<const std::byte> bytes);
  /// Passes all bytes to `take`, in pieces of multiples of `item` bytes.
  void each(size_t item, const std::function<void(std::span<const std::byte>)>& take);

 private:
  void flush();
  void fail(const char* what) const;
  fs::path folder_;
  int fd_ = -1;
  uint64_t stored_ = 0;
  std::vector<std::byte> buffer_;
};

template <class T>
class Spill {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Spill(fs::path folder) : file_(std::move(folder)) {}
  void push_back(T value) {
    last_ = value;
    ++size_;
    file_.append(std::as_bytes(std::span<const T>(&value, 1)));
  }
  size_t size() const { return size_; }
  /// The last value. REQUIRES: size() > 0.
  T back() const { return last_; }
  void each(const std::function<void(std::span<const std::byte>)>& take) {
    file_.each(sizeof(T), take);
  }

 private:
  SpillFile file_;
  size_t size_ = 0;
  T last_{};
};

}  // namespace mtrain
