// LineReader: reads a file line by line in bounded memory. Handles CRLF line ends, a byte order
// mark, a missing final line end, and compression. Owns its stream. Not synchronised: one thread at
// a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/data/input_stream.h"

namespace mtrain {

class MT_API LineReader {
 public:
  /// "-" is standard input. `too_long_help`: what to do about a line that is too long. Error(io)
  /// when the file cannot be opened; Error(data) when it begins like UTF-16.
  LineReader(const fs::path& path, uint64_t max_line_bytes,
             std::string too_long_help = "raise --max-document-bytes, or split the line");
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Reads the next line without its line end, valid until the next call; false at the end of the
  /// file. Error(data) with the line's number when it is longer than allowed.
  bool next(std::string_view& line);
  /// True when the current line had a line end: false only for a last line without one.
  bool had_end() const { return had_end_; }
  /// Number of the current line, from 1.
  int64_t line_number() const { return line_number_; }
  /// "path:7", for messages.
  std::string place() const;
  /// The name of the file, for messages.
  const std::string& name() const { return stream_.name(); }
  /// Bytes read from the file so far, before decompression.
  uint64_t file_bytes() const { return stream_.file_bytes(); }
  /// Bytes of text returned so far, with line ends.
  uint64_t text_bytes() const { return text_bytes_; }

 private:
  bool refill();
  void check_start();

  InputStream stream_;
  uint64_t max_line_bytes_;
  std::string too_long_help_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // the bytes of buffer_ that are not yet returned
  uint64_t text_bytes_ = 0;
  int64_t line_number_ = 0;
  bool had_end_ = false, at_end_ = false;
};

}  // namespace mtrain
