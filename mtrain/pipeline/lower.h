// Lowering of a compute-only schedule: inserts transfers between ranks and reductions. Stateless;
// thread-safe.
#pragma once
#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// Inserts SendX, RecvX, SendG and RecvG where neighbouring stages are on different ranks, and
/// R after a stage's last B or W. All programs follow one global order of transfers, so there
/// is no deadlock, whether transfers are asynchronous or block both sides. Between two ranks,
/// receives have the order of the sends, for transports without tags. `costs` affect the order, not
/// its correctness: with TransferMode::asynchronous, each transfer starts as soon as its data is
/// computed. With TransferMode::rendezvous, a second order is tried, in which a transfer starts
/// when both ranks are free (rendezvous_order.h); the order that finishes the step earlier is used.
/// Throws Error(config) for a schedule that has transfers already, that does not match the map, or
/// that cannot run.
MT_API Schedule lower(Schedule schedule, const StageMap& map, const Costs& costs = {});

}  // namespace mtrain
