// For transports on which both sides of a transfer stand still: when to meet. Stateless; for
// lower().
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Puts transfers into a sound schedule with reductions. Ranks are followed on a clock: whenever
/// two are free that have something to hand over, they do; a rank computes rather than waits for
/// one that computes. Each transfer gets its place in both programs at one moment, so the programs
/// cannot wait for each other for ever.
Schedule with_meetings(const Schedule& schedule, const StageMap& map, const Plan& plan,
                       const Costs& costs);

}  // namespace mtrain
