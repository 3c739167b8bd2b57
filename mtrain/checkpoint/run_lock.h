// RunLock: one writer per folder. Holds <folder>/run.lock by flock, which the system releases
// however the process ends, so a killed job leaves no stale lock. Movable; for one thread at a
// time.
#pragma once
#include "mtrain/base/file.h"

namespace mtrain {

class MT_API RunLock {
 public:
  /// Creates the folder when needed and takes its lock. Error(io) naming the holder's process and
  /// host when another job has it.
  explicit RunLock(const fs::path& folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace mtrain
