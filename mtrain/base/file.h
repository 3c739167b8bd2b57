// Files: whole reads, durable writes, read-only mappings. All failures are Error(io) that name the
// path and the system's reason. Objects own their descriptors; each object is for one thread at a
// time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

namespace fs = std::filesystem;

/// Opens a file for reading; the caller owns the descriptor. Refuses a folder, pipe, device or
/// socket, because a read of it may never end. Exception: a pipe of this process that is named by
/// its descriptor, such as `/dev/fd/63`, which a shell passes for `<(zcat x.gz)`.
MT_API int open_regular_file(const fs::path& path);
/// Reads a whole file, opened by open_regular_file; refuses a file larger than `max_bytes`.
MT_API std::string read_file(const fs::path& path, uint64_t max_bytes = uint64_t{1} << 32);

/// Who may read a new file: everybody whom the umask allows, or only its owner.
enum class Readers : uint8_t { everybody, owner };

/// A file that is being written. Every write completes or throws; nothing is durable before sync().
/// Failpoints: <site>.open, <site>.write, <site>.fsync with the given `site`.
class MT_API FileWriter {
 public:
  /// Creates the file. It must not exist, unless `truncate` is set.
  FileWriter(fs::path path, std::string site, bool truncate = false,
             Readers readers = Readers::everybody);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Makes the content durable. After a failed fsync the file must be discarded, never synced
  /// again.
  void sync();
  /// Closes the file without sync(). The destructor does the same, but reports no error.
  void close();
  uint64_t bytes() const { return bytes_; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::string site_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

/// Makes directory entries (creations, renames) durable. Failpoint: <site>.dirsync.
MT_API void sync_directory(const fs::path& directory, std::string_view site = "dir");
/// Renames, then makes the rename durable by an fsync of the parent folder. Fails if `to` is a
/// non-empty directory. Failpoints: <site>.rename, <site>.dirsync.
MT_API void durable_rename(const fs::path& from, const fs::path& to,
                           std::string_view site = "rename");
/// Writes `content` so that a crash leaves either the old file or the complete new one: temporary
/// file, fsync, rename, fsync of the folder.
MT_API void write_file_atomic(const fs::path& path, std::string_view content,
                              std::string_view site = "file", Readers readers = Readers::everybody);
/// Creates a directory and its parents; the Error(io) names the path that is in the way.
MT_API void make_directories(const fs::path& path);

/// A whole file, mapped read-only. An empty file gives an empty span. Owns the mapping.
class MT_API MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }
  /// Advises the kernel that reads will be scattered (no read-ahead) or sequential.
  void advise_random() const;
  void advise_sequential() const;

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The directory of the running executable.
MT_API fs::path program_directory();

}  // namespace mtrain
