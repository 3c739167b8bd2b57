// InputFile: a regular file read at positions, for files that others may have made or may still
// change. Reads are system calls, not a mapping, so a file that shrinks under us is an error and
// not a signal. Owns its descriptor; const calls are safe from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "mtrain/base/file.h"

namespace mtrain {

class MT_API InputFile {
 public:
  /// Opens a regular file. Error(checkpoint) when it is missing or something else than a regular
  /// file, Error(io) when the system refuses it.
  explicit InputFile(fs::path path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const fs::path& path() const { return path_; }
  /// Bytes at the time of opening.
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
