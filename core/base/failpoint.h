// Failpoints: named places where a test makes the program fail as the world would. Compiled in always, armed only by the
// environment: MTRAIN_FAULT=site[:nth[:action]][,…] with action kill | throw | errno=ENOSPC | short | delay=MS | nan.
// An unarmed failpoint costs one load and a branch. Thread-safe.
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

/// Counts a visit of `site`. When armed for this visit: kills the process, throws Error(io), sleeps, or returns what the
/// caller is to act out. `nth` counts from 1; 0 means every visit.
MT_API Fault failpoint(std::string_view site);

/// All sites that this process has passed, with their visit counts, as "site count" (empty unless MTRAIN_FAULT is set).
MT_API std::vector<std::string> failpoint_visits();

}  // namespace mtrain
