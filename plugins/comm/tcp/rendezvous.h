// The rendezvous: how processes started by a launcher connect to each other. The first rank listens
// at MASTER_ADDR and MASTER_PORT and sends all ranks the addresses of the others; then each pair of
// ranks connects. A connection that does not prove that it knows the job's secret (greeting.h) is
// dropped without delaying others, because all connections are served concurrently. No socket is
// left listening afterwards. Stateless.
#pragma once
#include <chrono>
#include <vector>

#include "rank_environment.h"

namespace mtrain::tcp {

struct RendezvousLimits {
  std::chrono::milliseconds whole = std::chrono::minutes(5);
  std::chrono::milliseconds greeting =
      std::chrono::seconds(10);  // for one connection; then it is dropped, or tried again
};

/// A descriptor for each rank, connected and with TCP_NODELAY; -1 for this one. Throws Error(peer)
/// for ranks that do not connect in time or disconnect, and Error(config) if a rank of the job
/// connects twice or does not match, or if this rank is refused.
std::vector<int> connect_ranks(const RankEnvironment& environment,
                               const RendezvousLimits& limits = {});

}  // namespace mtrain::tcp
