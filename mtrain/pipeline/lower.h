// Lowering of a compute-only schedule: inserts transfers between ranks and reductions. Stateless;
// thread-safe.
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts SendX, RecvX, SendG and RecvG where neighbouring stages are on different ranks, and
/// Reduce after a stage's last B or W. All programs follow one global order of transfers, so there
/// is no deadlock, whether transfers are asynchronous or block both sides. Between two ranks,
/// receives have the order of the sends, for transports without tags. `costs` affect the order, not
/// its correctness: with TransferMode::asynchronous, data is sent as soon as it is computed; with
/// TransferMode::rendezvous, either that, or a transfer when both sides are free (meetings.h),
/// whichever finishes earlier. Throws Error(config) for a schedule that has transfers already, that
/// does not match the map, or that cannot run.
MT_API Schedule lower(Schedule schedule, const StageMap& map, const Costs& costs = {});

}  // namespace mtrain
