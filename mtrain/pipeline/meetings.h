// Placement of transfers for transports on which both sides block (rendezvous). Stateless; used by
// lower().
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts transfers into a valid schedule with reductions. Simulates the ranks on a clock:
/// whenever two ranks are free and have data to transfer between them, they do so; a rank prefers
/// computing to waiting for a rank that computes. Each transfer is inserted into both programs at
/// the same moment, so the programs cannot deadlock.
Schedule with_meetings(const Schedule& schedule, const StageMap& map, const Plan& plan,
                       const Costs& costs);

}  // namespace mtrain
