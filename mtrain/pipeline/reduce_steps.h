// The reductions of gradients as steps: inserts them into the lists of a rank's program, after the
// steps that complete their buckets. For stage_steps.cc. A pure function; thread-safe.
#pragma once
#include "mtrain/pipeline/stage_steps.h"

namespace mtrain {

/// Inserts a Reduce of each bucket with parameters in the program's stages (ReduceWhen): into B, or
/// into W where the program has W, after the last step that adds to its gradients (at the end of
/// the action if no step does), or into the last R. A B of a later stage than the first one passes
/// its result on before the rank waits for reductions (GradientBucket::waits): these are in the
/// Scatter of its micro-batch. A program without B, or for `step_end` without R, gets none.
/// REQUIRES: `lists` has the compute steps of all actions.
void insert_reductions(StepLists& lists, const Program& program, const StepRules& rules);

}  // namespace mtrain
