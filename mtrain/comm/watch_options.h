// Options for the detection of failed ranks; job_judge.h has the criteria. Values.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "mtrain/base/error.h"

namespace mtrain {

/// The share of WatchOptions::silence in which ranks end by themselves after a failure.
inline constexpr double kFinishShare = 0.6;

struct WatchOptions {
  /// A job ends within this time after a rank died or was stopped; after a rank got stuck, within
  /// this time or three times the duration of the slowest steps, whichever is longer (job_judge.h).
  /// Zero: ranks are not watched; only the time limit of calls applies.
  std::chrono::milliseconds silence{0};
  /// Ends the process after a failure of the job, since its own ranks may hang. `reports`: this
  /// process reports the failure to the user; true in one process of the job. Called on a separate
  /// thread without locks; need not return. Empty: ranks get the error from their calls, and the
  /// job waits for a rank that makes no call.
  std::function<void(const Error& error, bool reports)> give_up;
  /// Receives a notice for the user, such as about a slow rank. Called on a separate thread.
  std::function<void(const std::string& text)> note;
};

}  // namespace mtrain
