// From what is to be computed to what each rank does: transfers between ranks and reductions are
// put in. Stateless.
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts SendX, RecvX, SendG and RecvG where neighbouring stages lie on different ranks, and
/// Reduce behind a stage's last B or W. All programs keep one order of all transfers, so none can
/// wait for ever, whether transfers are only started or make both sides stand still; and between
/// two ranks receives have the order of their sends, for transports without tags. `costs` choose
/// the order, not whether it is sound: with TransferMode::asynchronous data is sent as soon as it
/// is made; with TransferMode::rendezvous that or meetings when both sides are free, whichever ends
/// earlier. Throws Error(config) for a schedule that has transfers already, is not where the map
/// says, or cannot run.
MT_API Schedule lower(Schedule schedule, const StageMap& map, const Costs& costs = {});

}  // namespace mtrain
