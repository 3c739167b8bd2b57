// PipelinePlan: how a recipe splits its model into stages, and the order in which a step runs them:
// `dist.schedule` or `dist.schedule_file`, checked by simulation before anything is built. A value;
// safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/pipeline/simulate.h"
#include "mtrain/pipeline/split.h"
#include "mtrain/pipeline/stage_link.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct MT_API PipelinePlan {
  Plan plan;
  StageMap map = StageMap::looping(1);
  std::vector<StagePart> parts;  // by stage
  Schedule schedule;             // compute and reductions only
  std::string name = "1f1b";     // the name of the schedule or its file
  StageLink::Options transfers;
  bool late_weights = false;  // add W directly after B if the schedule has no W
  bool late_head =
      false;  // the gradient of the output head's matrix is deferred to the Reduce of its stage
  int64_t late_heads = 0;  // at most this many micro-batches; 0: all

  int64_t ranks() const { return map.ranks(); }
  /// True if embedding and head are on different ranks.
  bool ends_apart() const { return map.rank(0) != map.rank(map.stages() - 1); }
  /// The program of a rank, including transfers.
  Program program(int64_t rank) const;
  /// A plan for dry runs: with fewer micro-batches if the peak memory is the same.
  PipelinePlan for_dry_run() const;
  /// The plan for another number of micro-batches. REQUIRES: the schedule is generated, not from a
  /// file.
  PipelinePlan with_micro_batches(int64_t number) const;
  /// make_schedule() of `name`, with late weights.
  Schedule make() const;
  /// The simulated schedule, where F, B and W of a block take the same time, and transfers,
  /// embedding and head none. The unit of memory is one micro-batch of one block.
  Simulated simulated() const;
  /// "1f1b: 2 ranks x 2 stages (Et|t|t|tL), 8 micro-batches, bubble 11.1 %, …".
  std::string text() const;
};

/// The plan of one step of the recipe, the same for each data-parallel rank. Throws Error(config)
/// if the layout is invalid or the schedule cannot run; the message names the actions that wait for
/// each other.
MT_API PipelinePlan pipeline_plan(const Recipe& recipe);

}  // namespace mtrain
