// PipelinePlan: how a recipe splits its model into stages, and the order in which a step runs them:
// `dist.schedule` or `dist.schedule_file`, checked by simulation before anything is built. A value;
// safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/pipeline/sharding_actions.h"
#include "mtrain/pipeline/simulate.h"
#include "mtrain/pipeline/split.h"
#include "mtrain/pipeline/stage_link.h"
#include "mtrain/pipeline/stage_steps.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The speed of a rank, for the simulation of a step. If either is 0, transfers and collectives
/// take no time.
struct RankSpeed {
  double tflops = 0;   // of matrix products
  double link_gb = 0;  // gigabytes per second that it receives from other ranks
};

/// What one rank computes and receives for one block of one micro-batch. Estimated from the model's
/// sizes (block_sizes.h): a block has 2 h w (heads + key/value heads) parameters for attention and
/// 3 h f for the MLP, or for each expert (h: hidden size, w: width of a head, f: width of the MLP).
struct StepTraffic {
  int zero_stage = 0;
  double operations = 0;         // of a block's forward; 0: the model's sizes are not known
  double gathered = 0;           // bytes, of a block's parameters
  double exchanged = 0;          // bytes, of one all-to-all of tokens between expert-parallel ranks
  double expert_share = 0;       // the part of its operations that experts compute
  double residual_bytes = 0;     // that one stage sends to the next
  bool overlap_gathers = false;  // with compute
};

struct MT_API PipelinePlan {
  Plan plan;
  StageMap map = StageMap::looping(1);
  std::vector<StagePart> parts;  // by stage
  int64_t layers = 0;            // of the whole model
  Schedule schedule;             // compute, collectives and reductions
  std::string name = "1f1b";     // the name of the schedule or its file
  StageLink::Options transfers;
  InnerStepRules steps;      // what happens inside actions, from the recipe's sizes
  ShardingActions sharding;  // inserted into the schedule if it has no such actions
  StepTraffic traffic;
  bool tied_head = false;            // the head reads the embedding matrix
  bool adds_weight_actions = false;  // add W directly after B if the schedule has no W
  bool defer_head_wgrad =
      false;  // the gradient of the output head's matrix is deferred to the R of its stage
  int64_t deferred_head_limit = 0;  // at most this many micro-batches; 0: all

  int64_t ranks() const { return map.ranks(); }
  /// The stage with the blocks of multi-token prediction; -1: none.
  int64_t mtp_stage() const;
  /// The ranks that hold the embedding matrix if several stages read it, in the order of stages:
  /// those of the first stage, of blocks of multi-token prediction in a stage before the last one,
  /// and of the last stage, except where these blocks are apart and the head has its own matrix.
  std::vector<int64_t> table_ranks() const;
  /// True if embedding and head are on different ranks.
  bool splits_embedding_and_head() const { return map.rank(0) != map.rank(map.stages() - 1); }
  /// The lists of inner steps of a rank's program, as text.
  std::string steps_text(int64_t rank) const;
  /// The program of a rank, including transfers.
  Program program(int64_t rank) const;
  /// A plan for dry runs: with fewer micro-batches if the peak memory is the same.
  PipelinePlan for_dry_run() const;
  /// The plan for another number of micro-batches. REQUIRES: the schedule is generated, not from a
  /// file.
  PipelinePlan with_micro_batches(int64_t number) const;
  /// make_schedule() of `name`, with separate W actions if `adds_weight_actions`, and with the
  /// collectives of ZeRO.
  Schedule make() const;
  /// Costs where F, B and W of a block take one unit of time each, and embedding and head none.
  /// Transfers and collectives take the time of their bytes over the link, relative to a block's
  /// forward. The unit of memory is one micro-batch of one block.
  Costs costs(const RankSpeed& speed = {}) const;
  Simulated simulated(const RankSpeed& speed = {}) const;
  /// Number of blocks of a stage, including those of multi-token prediction.
  int64_t blocks(int64_t stage) const;
  /// "1f1b: 2 ranks x 2 stages (Et|t|t|tL), 8 micro-batches, bubble 11.1 %, …".
  std::string text() const;
  /// "gathered by stage, 8 blocks per step and rank, at most 4 at once": the parameters of ZeRO 3;
  /// empty without it.
  std::string gathers_text() const;
};

/// The plan of one step of the recipe, the same for each data-parallel rank. Throws Error(config)
/// if the layout is invalid or the schedule cannot run; the message names the actions that wait for
/// each other.
MT_API PipelinePlan pipeline_plan(const Recipe& recipe);

}  // namespace mtrain
