// RunLock: one writer per folder. Locks <folder>/run.lock by flock. The system releases the lock
// when the process ends for any reason, so a killed job leaves no stale lock. Owns its descriptor;
// movable. Not synchronised: one thread at a time.
#pragma once
#include "mtrain/base/file.h"

namespace mtrain {

class MT_API RunLock {
 public:
  /// Creates the folder if necessary and takes its lock. Error(io) that names the holder's process
  /// and host when another job holds it. Where the file system has no locks, logs a warning and
  /// holds none.
  explicit RunLock(const fs::path& folder);
  /// True when another process holds the lock of the folder. Creates nothing.
  static bool held_by_another(const fs::path& folder);
  /// True when no process holds the lock. False also where that is unknown: without a lock file or
  /// the permission to open it, and on a file system without locks.
  static bool is_free(const fs::path& folder);
  static fs::path file_of(const fs::path& folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace mtrain
