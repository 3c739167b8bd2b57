// The reductions of gradients as inner steps: inserts them into the lists of a rank's program,
// after the steps that complete their buckets. For stage_steps.cc. A pure function; thread-safe.
#pragma once
#include "mtrain/pipeline/stage_steps.h"

namespace mtrain {

/// Inserts a Reduce of each bucket with parameters in the program's stages (ReduceWhen): into B, or
/// into W where the program has W, after the last step that adds to its gradients (at the end of
/// the action if no step does), or into the last R. Where the result of a B is sent to the stage
/// before, the rank must not wait for reductions before it sends: buckets with
/// GradientBucket::blocking go into the Scatter of the micro-batch instead, if the program has one.
/// Without the action that it belongs to (B, W or R), a bucket gets no Reduce.
/// REQUIRES: `lists` has the compute steps of all actions.
void insert_reductions(InnerStepLists& lists, const Program& program, const InnerStepRules& rules);

}  // namespace mtrain
