// What the collectives of a step's program do: Gather and Release to the parameters, Scatter and
// Reduce to the gradients. Stateless; for the rank's own thread.
#pragma once
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/pipeline/interpreter.h"

namespace mtrain {

/// Sets all hooks of the interpreter. Buckets and reducer must outlive it.
void set_step_hooks(Interpreter& interpreter, ParamBuckets& buckets, GradReducer& reducer);

}  // namespace mtrain
