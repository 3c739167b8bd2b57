// Inner steps: what happens inside the actions of a program, as data: the parts of the model that
// F, B and W compute, the gathers and releases of parameters (ZeRO 3 without Gather of whole
// stages), the exchanges of tokens between expert-parallel ranks, and the reductions of gradients
// (in B, W, Scatter and R). The simulator, `mtrain check --schedule` and the interpreter
// (step_cursor.h) read the same lists. Pure functions of a rank's program and of the model's parts
// and buckets; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "mtrain/nn/gradient_bucket.h"
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

enum class InnerStepKind : uint8_t {
  gather,    // all-gather of a part's parameters
  release,   // their memory is freed
  compute,   // forward or backward of a part; of one with experts: without them
  experts,   // forward or backward of the experts
  weights,   // W of a part: the gradients that its B has deferred
  reduce,    // the reduction of a bucket of gradients starts
  dispatch,  // all-to-all: tokens to experts; in backward the gradients take the opposite direction
  combine    // all-to-all: results of experts back to their tokens
};
inline bool is_exchange(InnerStepKind what) { return what >= InnerStepKind::dispatch; }
inline bool computes(InnerStepKind what) {
  return what == InnerStepKind::compute || what == InnerStepKind::experts;
}

/// Actions that have a list of inner steps.
inline bool has_steps(ActionKind what) {
  return what <= ActionKind::weight_grad || what == ActionKind::reduce ||
         what == ActionKind::reduce_scatter;
}

struct InnerStep {
  InnerStepKind what;
  PartId part;
  bool backward = false;  // of compute, experts and exchanges; false within B: recomputation
  int16_t bucket = -1;    // of reduce: its index in InnerStepRules::buckets
  bool operator==(const InnerStep&) const = default;
};
using InnerSteps = std::vector<InnerStep>;       // of an action
using InnerStepLists = std::vector<InnerSteps>;  // by position in the program; empty for actions
                                                 // other than F, B, W, Scatter and R

/// The inputs from which expand_steps() computes the inner steps of a rank's actions.
struct MT_API InnerStepRules {
  std::vector<StageParts> stages;  // by stage; may be empty for stages of other ranks
  /// ZeRO 3: parts are gathered before they compute, and released when other parts come next.
  /// Parts of a stage that the program has gathered (Gather) are there already.
  bool sharded = false;
  /// Without Gather of stages: while a part computes, the next one is gathered.
  bool ahead = false;
  /// Blocks that backward computes again: all, in groups of `recompute_group`, or, with
  /// `recompute_first`, only the first `recompute_group` blocks of a stage, one by one (BlockPlan).
  bool recompute = false, recompute_first = false;
  int64_t recompute_group = 1;
  bool recompute_experts = false;  // the experts and their exchanges alone
  /// The buckets of all stages of the rank. Reductions that are due at the same time start in this
  /// order. The lists have only the buckets of their program's stages.
  std::vector<GradientBucket> buckets = {};
  bool defer_head_wgrad =
      false;  // the gradient of the head's matrix is complete only at the last R

  const ModelPart& part(PartId id) const;
  /// False: nothing but compute would be in the lists.
  bool has_collectives() const;
};

/// The inner steps of each F, B, W and Scatter of a rank's program, and of its last R. A part that
/// two inner steps in succession need, within an action or in two of them, is gathered once: the
/// list of an action depends on those before and after it. At the end of the program nothing is
/// gathered. Throws Error(config) if two overlapped actions would have to gather parts.
MT_API InnerStepLists expand_steps(const Program& program, const InnerStepRules& rules);

/// The parts that are gathered while a compute or exchange step runs, and to whose gradients a
/// backward or W adds. A model may read parameters of a block before and after the exchanges of its
/// experts.
MT_API std::vector<PartId> read_by(const InnerStep& step, const InnerStepRules& rules);

/// "Gather(3)", "F(3)", "B(head)", "W(3)", "Experts(3)", "Dispatch(3)", "Reduce(embed..3)";
/// "Gather(0:embed)" for a part of a stage other than the action's.
MT_API std::string to_text(const InnerStep& step, int64_t stage, const InnerStepRules& rules);
/// Each list once: "0F1 0F2 …: Gather(1) F(0) Release(0)", one line per list; then one line per
/// bucket that is reduced: "Reduce(embed..3): all-reduce of 1.2 MiB over the 2 ranks of dp".
MT_API std::string to_text(const InnerStepLists& lists, const Program& program,
                           const InnerStepRules& rules);

}  // namespace mtrain
