// Failpoints: named places where a test makes the program fail as the world would. Compiled in
// always, armed only by the environment: MTRAIN_FAULT=site[:nth[:action]][,…] with action kill |
// stop | throw | errno=ENOSPC | short | delay=MS | await=SITE/N | nan. What has several actions at
// a visit does them in the order in which they are written. An unarmed failpoint costs one load and
// a branch. Thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

enum class FaultAction { none, fail_errno, short_write, nan };

struct Fault {
  FaultAction action = FaultAction::none;
  int error = 0;  // the errno to report, for fail_errno
  explicit operator bool() const { return action != FaultAction::none; }
};

/// Counts a visit of `site`. When armed for this visit: kills the process, stops it until somebody
/// continues it, throws Error(io), sleeps, waits until another site of the process has been visited
/// N times (Error(io) after ten minutes), or returns what the caller is to act out. `nth` counts
/// from 1; 0 means every visit.
MT_API Fault failpoint(std::string_view site);

/// All sites that this process has passed, with their visit counts, as "site count" (empty unless
/// MTRAIN_FAULT is set).
MT_API std::vector<std::string> failpoint_visits();

}  // namespace mtrain
