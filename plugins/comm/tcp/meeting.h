// Meeting: how processes that a launcher started find each other. The first one listens where MASTER_ADDR and MASTER_PORT say;
// it tells all where the others listen, and each two are connected. Stateless.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace mtrain::mpi {

/// What the launcher says.
struct Place {
  int rank = 0, size = 1;
  std::string address;
  int port = 0;
  std::string job;  // a word that only members of the job know, as far as launchers give one
};
/// From RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or Slurm's numbers for the first two; a job of one without any of them.
/// Throws Error(config) that names what is missing or no number.
Place place_from_environment();

/// A descriptor for each rank, connected and without delays; -1 for this one. Throws Error(peer) for ranks that do not come
/// within `limit`, and Error(config) for one that comes twice or belongs to another job.
std::vector<int> meet(const Place& place, std::chrono::seconds limit);

}  // namespace mtrain::mpi
