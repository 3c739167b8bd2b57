// How the ranks of a job watch each other; see job_judge.h for what is looked for. Values.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "mtrain/base/error.h"

namespace mtrain {

struct WatchOptions {
  /// A job ends within this time, or three times its slowest steps, after a rank died, stopped or
  /// got stuck. Zero: nobody watches, and the time limit of calls is all there is.
  std::chrono::milliseconds silence{0};
  /// Ends the process, which cannot go on: the job has failed, and this process's own ranks may
  /// never come back from what they do. `speaks`: this process is to tell the user; one of the
  /// job's is. Called on a thread of its own, with nothing locked; need not return. None: ranks get
  /// the error from their calls, and one that makes none is waited for.
  std::function<void(const Error& error, bool speaks)> give_up;
  /// Something worth knowing, such as a rank that has become slow. Called on a thread of its own.
  std::function<void(const std::string& text)> note;
};

}  // namespace mtrain
