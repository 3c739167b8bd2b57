// Environments of ranks with a rendezvous on a loopback address that only this process uses.
#pragma once
#include <unistd.h>

#include <functional>
#include <string>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "plugins/comm/tcp/rank_environment.h"

namespace mtrain::tcp {

using testing::has;

inline RankEnvironment environment_of(int rank, int size,
                                      const std::string& secret = "a secret of this test's ranks") {
  static const pid_t kPid = ::getpid();
  return {.rank = rank,
          .size = size,
          .address = cat("127.", 1 + (kPid >> 16) % 250, ".", (kPid >> 8) % 256, ".", kPid % 256),
          .port = 23456,
          .job = "job",
          .secret = {secret, "the test"}};
}

/// The error that `fn` throws; it must have this class.
inline std::string message_of(ErrorClass wanted, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    if (error.error_class() == wanted) return cat(error.message(), "\n", error.hint());
    return cat("of class ", name(error.error_class()), ": ", error.message());
  }
  return "nothing was thrown";
}

}  // namespace mtrain::tcp
