// InputStream: the bytes of a file or of standard input, decompressed when they begin like gzip or
// Zstandard. Concatenated compressed files are read as one. All texts and JSON lines that users
// give are read by it, through LineReader or InputBuffer. These classes own their descriptors. Not
// synchronised: one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

class MT_API InputStream {
 public:
  /// "-" is standard input. Error(io) when it cannot be opened or is a folder; Error(data) when it
  /// begins like a file that is no text (foreign_files.h).
  explicit InputStream(const fs::path& path);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  /// Reads up to `size` bytes; 0 at the end. Error(io) when the system reports an error;
  /// Error(data) for a damaged or truncated compressed stream.
  size_t read(char* to, size_t size);
  /// Bytes read from the file so far, before decompression.
  uint64_t file_bytes() const { return file_bytes_; }
  /// The path, or "standard input", for messages.
  const std::string& name() const { return name_; }

 private:
  class Decoder;
  class Gzip;
  class Zstandard;
  size_t read_file(char* to, size_t size);
  bool refill();
  void choose_decoder();

  std::string name_;
  int fd_ = -1;
  bool owned_ = true, at_end_ = false;
  uint64_t file_bytes_ = 0;
  std::string buffer_;  // bytes of the file that are read but not yet returned or decompressed
  size_t begin_ = 0, end_ = 0;        // of buffer_
  std::unique_ptr<Decoder> decoder_;  // null: the file is not compressed
};

/// An InputStream for parsers that read characters. Drops a byte order mark of UTF-8. Throws the
/// errors of InputStream where it is read.
class MT_API InputBuffer final : public std::streambuf {
 public:
  explicit InputBuffer(const fs::path& path);

 protected:
  int_type underflow() override;

 private:
  InputStream stream_;
  std::vector<char> buffer_;
};

/// The path without the ending of a compressed file: "a.jsonl" for "a.jsonl.gz".
MT_API fs::path without_compression(const fs::path& path);

}  // namespace mtrain
