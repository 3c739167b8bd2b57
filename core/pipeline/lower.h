// From what is to be computed to what each rank does: transfers between ranks and reductions are put in.
// Stateless.
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts SendX, RecvX, SendG and RecvG where neighbouring stages lie on different ranks, and Reduce behind
/// a stage's last B or W. One order of all transfers, which every program keeps, is taken from running the
/// schedule with these costs: so no program can wait for ever, whether transfers are only started (and may
/// then go wrong in nothing but their timing) or make both sides stand still, and between two ranks receives
/// have the order of their sends, for transports without tags. Throws Error(config) for a schedule that has
/// transfers already, is not where the map says, or cannot run.
MT_API Schedule lower(Schedule schedule, const StageMap& map, const Costs& costs = {});

}  // namespace mtrain
