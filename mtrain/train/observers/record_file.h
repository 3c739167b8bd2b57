// RecordFile: a file that grows by whole records, for metrics that must never stop training. A
// record is one write to a descriptor in append mode; what a full disk cuts short is taken back, so
// the file always ends with a whole record. Trouble is told once, on the log. Owns its descriptors;
// for one thread at a time.
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

  /// Appends one record, whole or not at all. Returns the offset it starts at, or -1 after a
  /// failure.
  int64_t append(std::string_view record);
  /// Replaces bytes inside the file by as many others, provided they still read `before`.
  bool replace(int64_t offset, std::string_view before, std::string_view after);
  /// Cuts the file off at `bytes`; a shorter file stays as it is.
  void truncate(int64_t bytes);

  bool usable() const { return fd_ >= 0; }
  const fs::path& path() const { return path_; }

 private:
  void warn(const char* operation, int error);

  fs::path path_;
  std::string what_;
  int fd_ = -1;  // in append mode
  int inside_fd_ =
      -1;  // for replace(): writes in append mode go to the end, wherever they are aimed
  bool warned_ = false;
};

}  // namespace mtrain
