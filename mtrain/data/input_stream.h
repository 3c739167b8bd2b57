// InputStream: the bytes of a file or of standard input, decompressed where they begin like gzip or
// Zstandard. Several compressed files laid end to end are read as one. Owns its descriptor; for one
// thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "mtrain/base/file.h"

namespace mtrain {

class MT_API InputStream {
 public:
  /// "-" is standard input. Error(io) when it cannot be opened or is a folder.
  explicit InputStream(const fs::path& path);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  /// Up to `size` bytes, 0 at the end. Error(io) for what the system refuses; Error(data) for a
  /// compressed stream that is damaged or cut short.
  size_t read(char* to, size_t size);
  /// Bytes of the file read so far, as they lie there: compressed.
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
  std::string buffer_;          // of the file: what was read but not given or decompressed yet
  size_t begin_ = 0, end_ = 0;  // of buffer_
  std::unique_ptr<Decoder> decoder_;  // null: the bytes are as they lie there
};

}  // namespace mtrain
