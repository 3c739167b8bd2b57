// GradientBucket: gradients that data-parallel ranks reduce in one collective, as the program of a
// step sees them. The lists of inner steps (mtrain/pipeline/stage_steps.h) say where each bucket's
// reduction starts; GradReducer (mtrain/optim/grad_reducer.h) describes its buckets in this form
// and runs the reductions. Values; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "mtrain/nn/model_parts.h"

namespace mtrain {

/// When a bucket is reduced.
enum class ReduceWhen : uint8_t {
  step_end,       // once, by the program's last R
  last_backward,  // once, in the last B (W, if the program has W) that adds to it
  every_backward  // for each micro-batch, in the B (W, if the program has W) that adds to it
};

struct GradientBucket {
  std::vector<PartId> parts;  // that have parameters in it, ascending; not empty
  ReduceWhen when = ReduceWhen::step_end;
  bool blocking = true;  // where the rank starts the reduction, it waits until it is complete;
                         // false: the reduction overlaps with compute
  bool expert =
      false;  // parameters of experts, which are replicated over other ranks than the rest
  std::string collective;  // "all-reduce"
  std::string axis;        // the group of ranks: "dp"
  int64_t ranks = 1;       // in that group
  int64_t bytes = 0;       // of the message
  int64_t sent = 0;        // by one rank in one reduction
};

}  // namespace mtrain
