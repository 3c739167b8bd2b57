// LineReader: a file line by line in bounded memory, whatever its size, with the things that text files do:
// CRLF line ends, a byte order mark, no final line end. Owns its descriptor; for one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/file.h"

namespace mtrain {

class MT_API LineReader {
 public:
  /// Error(io) when the file cannot be opened; Error(data) when it begins like UTF-16 or a compressed file.
  LineReader(const fs::path& path, uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Gets the next line without its end, valid until the following call; false at the end of the file.
  /// Error(data) with the line's number when it is longer than allowed.
  bool next(std::string_view& line);
  /// Whether the line just given had an end: false only for a last line without one.
  bool had_end() const { return had_end_; }
  /// Number of the line just given, from 1.
  int64_t line_number() const { return line_number_; }
  /// "path:7", for messages.
  std::string place() const;
  const fs::path& path() const { return path_; }
  /// Bytes read from the file so far.
  uint64_t bytes() const { return bytes_; }

 private:
  bool refill();
  void check_start();

  fs::path path_;
  uint64_t max_line_bytes_;
  int fd_ = -1;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // the bytes of buffer_ not yet given
  uint64_t bytes_ = 0;
  int64_t line_number_ = 0;
  bool had_end_ = false, at_end_ = false;
};

}  // namespace mtrain
