// RecordFile: a file to which whole records are appended, for metrics that must never stop
// training. A record is one write to a descriptor in append mode; a record that a full disk
// truncates is removed, so the file always ends with a complete record. A failure is logged once.
// Owns its descriptors. For one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/file.h"

namespace mtrain {

class RecordFile {
 public:
  /// Opens or creates `path`; `what` names it in the warning ("metrics"). Failpoints: <what>.open,
  /// <what>.write.
  RecordFile(fs::path path, std::string what);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Appends one record completely or not at all. Returns the offset of its start, or -1 after a
  /// failure.
  int64_t append(std::string_view record);
  /// Replaces bytes in the file by the same number of others if they still equal `before`.
  bool replace(int64_t offset, std::string_view before, std::string_view after);
  /// Truncates the file to `bytes`; a shorter file is unchanged.
  void truncate(int64_t bytes);

  bool usable() const { return fd_ >= 0; }
  const fs::path& path() const { return path_; }

 private:
  void warn(const char* operation, int error);

  fs::path path_;
  std::string what_;
  int fd_ = -1;         // in append mode
  int inside_fd_ = -1;  // for replace(), since pwrite in append mode ignores its offset
  bool warned_ = false;
};

/// For lines that begin with `{"step":N,` and whose steps ascend: the number of bytes up to the end
/// of the last complete line before the first line of a step after `last`. Lines without a step
/// count as those before them. 0: nothing is kept, or there is no such file.
int64_t bytes_up_to_step(const fs::path& path, int64_t last);

}  // namespace mtrain
