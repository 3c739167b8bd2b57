// Placement of transfers for transports on which both sides block (rendezvous). Stateless; used by
// lower().
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts transfers into a valid schedule with reductions. Simulates the ranks in time: when two
/// ranks are idle and data is ready for a transfer between them, the transfer starts; if the other
/// rank is computing, an idle rank computes instead of waiting. Each transfer is inserted into both
/// programs at the same simulated time, so the programs cannot deadlock.
Schedule with_rendezvous_transfers(const Schedule& schedule, const StageMap& map, const Plan& plan,
                                   const Costs& costs);

}  // namespace mtrain
