// InputFile: positional reads of a regular file that is untrusted or may still change. Reads are
// system calls, not a mapping, so a file that shrinks while it is read causes an error, not a
// signal. Owns its descriptor. Const members are safe from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "mtrain/base/file.h"

namespace mtrain {

class MT_API InputFile {
 public:
  /// Opens a regular file. Error(checkpoint) when it is missing or not a regular file, Error(io)
  /// when the system cannot open it.
  explicit InputFile(fs::path path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const fs::path& path() const { return path_; }
  /// The size when the file was opened.
  uint64_t size() const { return size_; }
  /// Fills `out` from the byte `offset`; Error(io) when the file ends before that.
  void read(uint64_t offset, std::span<std::byte> out) const;
  /// CRC-32C of `bytes` bytes from `offset`, read in pieces of a megabyte.
  uint32_t crc32c(uint64_t offset, uint64_t bytes) const;

 private:
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace mtrain
