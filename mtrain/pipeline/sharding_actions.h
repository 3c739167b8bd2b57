// The collectives of data-parallel ranks that shard parameters and gradients (ZeRO: Rajbhandari et
// al. 2020, arXiv:1910.02054) as actions of a schedule, so that they are simulated, printed and
// executed from one list. torch.distributed.pipelining has the same actions: UNSHARD, RESHARD,
// REDUCE_GRAD. Stateless.
#pragma once
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

struct ShardingActions {
  /// ZeRO 3: the maximum number of stages whose gathered parameters a rank holds at the same time:
  /// the stage that it computes, and those that it computes next. With 2 or more, a
  /// stage is gathered before the previous one has finished, so that gathers can overlap with
  /// compute (Costs::overlap_gathers). 0: no Gather and Release are inserted, and each block
  /// gathers its parameters when it is used.
  int64_t resident_stages = 0;
  /// ZeRO 2 and 3: a Scatter after the last backward of each micro-batch.
  bool reduce_scatter = false;
};

/// Inserts Scatter; Gather before the first F or B that needs a stage's parameters, as early as
/// `resident_stages` allows; and Release after the last F or B before other stages are needed. A
/// forward and the backward that overlaps with it count as one action: both stages are held, and
/// nothing is inserted between them. If the schedule already has Gather (or Scatter), none are
/// inserted. Call it before lower().
MT_API Schedule with_sharding_actions(Schedule schedule, const ShardingActions& actions);

}  // namespace mtrain
