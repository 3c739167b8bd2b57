// Failpoints: named places in the code where a test injects a failure. They are always compiled in,
// and armed only by the environment: MTRAIN_FAULT=site[:nth[:action]][,…], where action is kill |
// stop | throw | errno=ENOSPC | short | delay=MS | await=SITE/N | nan; by default `nth` is 1 and
// the action kill. Any other text is Error(usage) at the first visit of any site. If several
// actions apply to one visit, they run in the order in which they are written, up to the first one
// that throws or returns a Fault. An unarmed failpoint costs one load and a branch. Thread-safe.
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

/// Counts a visit of `site`. If an action is armed for this visit, it kills the process, stops it
/// until it is continued from outside, throws Error(io), sleeps, waits until another site of this
/// process has been visited N times (Error(io) after ten minutes), or returns a Fault that the
/// caller must carry out. `nth` counts from 1; 0 means every visit.
MT_API Fault failpoint(std::string_view site);

/// All sites that this process has visited, with their visit counts, as "site count" (empty unless
/// MTRAIN_FAULT is set).
MT_API std::vector<std::string> failpoint_visits();

}  // namespace mtrain
