// Simulates a schedule: finds its faults and computes its duration and memory, without tensors or
// threads. Accepts compute-only schedules (data arrives a transfer time after it was computed) and
// lowered ones (each transfer is an action). Collectives cost time only if they are actions
// (with_sharding_actions()) or inner steps of actions (stage_steps.h). Stateless; safe from any
// thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/pipeline/stage_steps.h"

namespace mtrain {

/// Costs of one micro-batch in one stage, in arbitrary but consistent units of time and memory.
struct StageCosts {
  double forward = 1, backward = 1, weights = 1;  // without W actions, B takes backward + weights
  double activation = 1;                          // held from F to the end of B
  double kept = 1;    // the part of it, plus output gradients, that W needs: held from the end of B
                      // to the end of W
  double gather = 0;  // time of a Gather
  double params = 0;  // memory of the gathered parameters: held from Gather to Release
  /// Costs of the inner steps of a block (Costs::steps): time of its gather, memory of its gathered
  /// parameters, time of one exchange of tokens, and the fraction of its compute time that the
  /// experts take. Parts other than blocks cost nothing.
  double block_gather = 0, block_params = 0, exchange = 0, expert_share = 0.5;
};

/// How an action waits for its transfer.
enum class TransferMode : uint8_t {
  asynchronous,  // send and receive return at once; the action that needs the data waits for it
  rendezvous     // both ranks wait until both have reached the transfer and it is complete
};

struct MT_API Costs {
  std::vector<StageCosts> stages;  // by stage; empty: `all` for every stage
  double send = 0;                 // time of a transfer between ranks
  TransferMode transfer = TransferMode::asynchronous;
  double byte = 0;  // time of a byte that a reduction of gradients sends
  /// Gathers run while their rank computes: F and B wait for the parameters of their stage only.
  /// Otherwise the rank waits for each. Scatter and R wait for reductions of gradients; an inner
  /// step that starts one waits for it if the bucket is GradientBucket::blocking. Gathers and
  /// reductions of a rank run one after the other.
  bool overlap_gathers = true;
  /// The inner steps of actions. All blocks take the same time; recomputation takes none. During an
  /// exchange of tokens the rank waits, or computes the other one of two overlapped actions.
  InnerStepRules steps = {};
  const StageCosts& of(int64_t stage) const {
    return stages.empty() ? all : stages[static_cast<size_t>(stage)];
  }
  /// The compute time of F, B or W, without waiting; 0 for other actions. `split`: the schedule has
  /// W.
  double computing(const Action& a, bool split) const;
  /// The same for a collective that does not overlap: the time for which its rank waits.
  double occupying(const Action& a, bool split) const;
  StageCosts all;
};

/// When an action ran. A collective that overlaps with compute starts at its position in the
/// program.
struct TimedAction {
  Action action;
  double start = 0, end = 0;
  size_t position = 0;  // in the rank's program
  int64_t order = 0;    // position in a sequential order in which all actions of all ranks can run
};

/// When a gather, an exchange or a reduction inside an action was in progress.
struct TimedStep {
  InnerStep step;
  double start = 0, end = 0;
  size_t action = 0;  // of the rank's timeline
};

struct Simulated {
  std::vector<std::string>
      faults;         // deadlocks with their causes, duplicates, missing and unknown actions
  double bubble = 0;  // fraction of the time of all ranks without F, B or W
  int64_t peak_activations = 0;  // the maximum number of (stage, micro-batch) pairs on one rank
                                 // that are between F and the last of B and W
  double makespan = 0;
  std::vector<double> busy;  // by rank: time in F, B and W
  std::vector<double> peak;  // by rank: peak memory of activations and gathered parameters, in the
                             // unit of the costs
  std::vector<std::vector<TimedAction>>
      timeline;  // by rank: the actions in the order in which they ran
  std::vector<std::vector<TimedStep>> collectives;  // by rank: inside its actions
};

/// Runs every rank's next action as soon as its dependencies are complete. `plan` gives the
/// expected stages and micro_batches. If any B has a W, all must have one. Throws Error(config) if
/// stages x micro-batches exceeds 4 million.
MT_API Simulated simulate(const Schedule& schedule, const Plan& plan, const Costs& costs = {});

}  // namespace mtrain
