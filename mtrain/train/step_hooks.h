// What the collectives of a step's program do: Gather and Release, of stages and of parts of the
// model, to the parameters; Scatter, R and its steps to the gradients. Stateless; for the rank's
// own thread.
#pragma once
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/pipeline/interpreter.h"

namespace mtrain {

/// Sets all hooks of the interpreter. The interpreter and the buckets refer to each other, and the
/// interpreter to the reducer: none may be used without the others.
void set_step_hooks(Interpreter& interpreter, ParamBuckets& buckets, GradReducer& reducer);

}  // namespace mtrain
