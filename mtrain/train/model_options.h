// Converts the settings of a recipe to options of nn's layers and of the reduction of gradients.
// Stateless functions; safe from any thread.
#pragma once
#include "mtrain/nn/adapter.h"
#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/coded_parameter.h"
#include "mtrain/nn/parallel.h"
#include "mtrain/nn/precision.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/param_rates.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// What the blocks recompute or offload: model.recompute* and offload.layers. `parallel` may be
/// null; the plan refers to its axes.
BlockPlan block_plan(const Settings& settings, const ParallelContext* parallel);
/// How ranks sum gradients: ddp.in_order, overlap_grad_reduce, grads_dtype, accumulate_dtype.
ReduceOptions reduce_options(const Settings& settings);
/// Which weights get adapters, and what else is trained: peft.*. Nothing if everything is trained.
std::optional<AdapterPlan> adapter_plan(const Settings& settings);
/// The learning rates and weight decays of parameters: optimizer.*, scheduler.*, and
/// peft.lr_ratio for b of adapters and for vectors, as in peft.
ParamRates param_rates(const Recipe& recipe);
/// How frozen weights are stored: peft.base. Nothing: in the compute dtype.
std::optional<CodedFormat> frozen_format(const Settings& settings);
/// Which matrix products are in FP8 or FP4, and how: mixed_precision.*.
PrecisionOptions precision_options(const Recipe& recipe);
/// The recipe for a model that is built for its names, shapes or stored values, which depend
/// neither on the device nor on the dtype: on the CPU, since the device may be absent here, and in
/// fp32 if nothing has resolved mixed_precision.dtype=auto.
Recipe recipe_on_cpu(Recipe recipe);

}  // namespace mtrain
