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
  Schedule schedule;             // of compute and reductions
  std::string name = "1f1b";     // of the schedule, or the file's
  StageLink::Options transfers;
  bool late_weights = false;  // W right behind B, where the schedule does not have it apart
  bool late_head =
      false;  // the gradient of the head's matrix is put off to the end of its stage, for
  int64_t late_heads = 0;  // at most so many micro-batches; 0: all

  int64_t ranks() const { return map.ranks(); }
  /// Embedding and head lie on different ranks.
  bool ends_apart() const { return map.rank(0) != map.rank(map.stages() - 1); }
  /// What a rank runs, transfers included.
  Program program(int64_t rank) const;
  /// The same with fewer micro-batches where that holds as much memory at once: for rehearsals.
  PipelinePlan rehearsal() const;
  /// The same for another number of micro-batches. REQUIRES: the schedule is not a file's.
  PipelinePlan with_micro_batches(int64_t number) const;
  /// make_schedule() of `name`, with late weights.
  Schedule make() const;
  /// What the schedule costs when F, B and W of a block take the same and transfers, embedding and
  /// head nothing. Memory is counted in micro-batches of one block.
  Simulated simulated() const;
  /// "1f1b: 2 ranks x 2 stages (Et|t|t|tL), 8 micro-batches, bubble 11.1 %, …": a line for people.
  std::string text() const;
};

/// The plan of one step of the recipe on each of its data-parallel ranks. Throws Error(config) when
/// the layout or the schedule does not work out, with what waits for what.
MT_API PipelinePlan pipeline_plan(const Recipe& recipe);

}  // namespace mtrain
