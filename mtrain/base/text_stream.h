// TextStream: human-readable output on a descriptor that may be a terminal, a file, a pipe, or
// closed. Writing never throws, never raises SIGPIPE, and never waits for a reader: text that a
// pipe or terminal does not accept at once is buffered, up to kMostKept, and written later. Text
// beyond that limit is dropped, and a line in the output says how many lines are missing.
// Owns a duplicate of the descriptor, so a file that later gets the same number is not affected.
// For one thread at a time.
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
  /// Drops buffered text; call flush() first.
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  /// `text`: whole lines, or a control sequence that redraws one line. Dropped as a whole if the
  /// buffer is full.
  void write(std::string_view text);
  /// Waits until the reader has taken all buffered text; gives up after one second without
  /// progress.
  void flush();
  /// True while there is buffered text that the reader has not taken.
  bool behind() const { return !kept_.empty(); }
  /// Number of lines that were dropped or are still buffered; 0 after an error.
  size_t lost() const;
  /// The first error other than a slow reader; 0: none.
  int error() const { return error_; }
  bool is_terminal() const;
  /// Current number of columns of the terminal; `otherwise` if it is unknown.
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
  size_t dropped_ = 0, missing_ = 0;  // dropped lines: in total; since the last notice
};

/// Writes to the standard error of the process through a TextStream. Thread-safe.
MT_API void write_standard_error(std::string_view text);
/// Flushes standard error. Call it before the process ends by any way other than exit(), which
/// flushes by itself.
MT_API void flush_standard_error();

}  // namespace mtrain
