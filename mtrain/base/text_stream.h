// TextStream: text for people, on a descriptor that may be a terminal, a file, a pipe, or gone.
// Writing never throws, never raises SIGPIPE, and never waits for a reader: what a pipe or terminal
// does not take at once is kept, up to kMostKept, and given to it later; what goes beyond is
// dropped line by line, and a line says so where it is missing. Owns a descriptor of its own, so a
// file that later gets the same number is safe from it. For one thread at a time.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API TextStream {
 public:
  static constexpr size_t kMostKept = size_t{256} << 10;

  explicit TextStream(int fd);
  /// Drops what nobody has read: flush() first.
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  /// `text`: whole lines, or what redraws one; dropped as a whole where there is no room.
  void write(std::string_view text);
  /// Waits for a reader who is behind: a second at most in which he reads nothing.
  void flush();
  /// Whether there is text that the reader has yet to take.
  bool behind() const { return !kept_.empty(); }
  /// Lines that were dropped, and that are kept still.
  size_t lost() const;
  /// The first error other than a reader who is behind; 0: none.
  int error() const { return error_; }
  bool is_terminal() const;
  /// Columns of the terminal now; `otherwise` where it has none to tell.
  int columns(int otherwise = 80) const;

 private:
  enum class Kind { plain, never_waits, socket, asks_first };
  void open_anew();
  bool drain();
  long write_some(std::string_view text) const;
  void fail(int error);

  int fd_ = -1, error_ = 0;
  Kind kind_ = Kind::plain;
  std::string kept_;
  size_t dropped_ = 0, missing_ = 0;  // lines: in all; since the last that said so
};

/// Standard error of the process, as a TextStream. Thread-safe.
MT_API void write_standard_error(std::string_view text);
/// Before a process ends, by whatever way but exit(), which does it by itself.
MT_API void flush_standard_error();

}  // namespace mtrain
