// Connects the collectives of a step's program to the objects that execute them: Gather and
// Release, of stages and of parts of the model, to the parameters' buckets; reductions, Scatter and
// R to the gradient reducer. Stateless; for the rank's own thread.
#pragma once
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/pipeline/interpreter.h"

namespace mtrain {

/// Sets all hooks of the interpreter. The interpreter and the buckets refer to each other, and the
/// interpreter to the reducer: none may be used without the others.
void set_step_hooks(Interpreter& interpreter, ParamBuckets& buckets, GradReducer& reducer);

}  // namespace mtrain
