// Place: what a launcher says of a rank and its job. Reads the environment; thread-safe as long as
// nobody changes it.
#pragma once
#include <string>

#include "secret.h"

namespace mtrain::tcp {

struct Place {
  int rank = 0, size = 1;
  std::string address;
  int port = 0;
  std::string job;           // names the job, as far as launchers do
  bool one_machine = false;  // the launcher says that all ranks are on one
  Secret secret;

  /// Whether nobody comes from another machine, and loopback is all there is to listen on. A
  /// machine's own name may mean loopback to itself and another address to all others (Debian's
  /// /etc/hosts), so a name says nothing.
  bool here_only() const;
};

/// From RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or Slurm's numbers for the first two; a job of
/// one without any of them, which needs no secret. Throws Error(config) that names what is missing
/// or no number.
Place place_from_environment();

}  // namespace mtrain::tcp
