// Meeting: how processes that a launcher started find each other. The first one listens where
// MASTER_ADDR and MASTER_PORT say; it tells all where the others listen, and each two are
// connected. Who cannot prove that it knows the job's secret (greeting.h) is dropped, and delays
// nobody: all connections are served at once. Nothing is left listening. Stateless.
#pragma once
#include <chrono>
#include <vector>

#include "place.h"

namespace mtrain::tcp {

struct MeetingLimits {
  std::chrono::milliseconds whole = std::chrono::minutes(5);
  std::chrono::milliseconds greeting =
      std::chrono::seconds(10);  // of one connection; then it is dropped, or tried again
};

/// A descriptor for each rank, connected and without delays; -1 for this one. Throws Error(peer)
/// for ranks that do not come in time or go away again, and Error(config) for one of the job that
/// comes twice or does not fit, or when this rank is refused.
std::vector<int> meet(const Place& place, const MeetingLimits& limits = {});

}  // namespace mtrain::tcp
