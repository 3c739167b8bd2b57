// RankEnvironment: what the launcher specifies about a rank and its job. Reads the environment;
// thread-safe as long as nothing changes it.
#pragma once
#include <string>

#include "secret.h"

namespace mtrain::tcp {

struct RankEnvironment {
  int rank = 0, size = 1;
  std::string address;
  int port = 0;
  std::string job;           // the job's name, if the launcher provides one
  bool one_machine = false;  // the launcher reports that all ranks are on one machine
  Secret secret;

  /// Whether all ranks are on this machine, so that listening on loopback suffices. A machine's own
  /// name may resolve to loopback on itself and to another address elsewhere (Debian's /etc/hosts),
  /// so a name proves nothing.
  bool here_only() const;
};

/// From RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or Slurm's variables for the first two; without
/// any of them a job of one rank, which needs no secret. Throws Error(config) that names a missing
/// or invalid variable.
RankEnvironment rank_environment();

}  // namespace mtrain::tcp
