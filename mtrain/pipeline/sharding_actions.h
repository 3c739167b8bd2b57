// The collectives of data-parallel ranks that shard parameters and gradients (ZeRO: Rajbhandari et
// al. 2020, arXiv:1910.02054) as actions of a schedule, so that they are simulated, printed and
// executed from one list. torch.distributed.pipelining has the same actions: UNSHARD, RESHARD,
// REDUCE_GRAD. Stateless.
#pragma once
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

struct ShardingActions {
  /// ZeRO 3: a rank holds the gathered parameters of at most so many stages: of the one that it
  /// computes, and of those that it computes next. From 2 on gathers overlap with compute. 0: no
  /// Gather and no Release are inserted, and blocks are gathered where they are used.
  int64_t resident_stages = 0;
  /// ZeRO 2 and 3: a Scatter after the last backward of each micro-batch.
  bool reduce_scatter = false;
};

/// Inserts Gather before the first F or B that needs a stage's parameters, as early as
/// `resident_stages` allows; Release after the last one, when other stages come next; and Scatter.
/// A forward and the backward that it overlaps with count as one: both stages are held, and nothing
/// comes between them. A schedule that has Gather (or Scatter) keeps its own. Call it before
/// lower().
MT_API Schedule with_sharding_actions(Schedule schedule, const ShardingActions& actions);

}  // namespace mtrain
