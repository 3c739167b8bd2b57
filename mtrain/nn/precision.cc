#include "mtrain/nn/precision.h"

#include <algorithm>

#include "mtrain/base/rng.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

/// Combines the largest values of tensors that are sharded over these axes.
void share_over(const Tensor& amax, std::initializer_list<const Axis*> axes) {
  for (const Axis* axis : axes) {
    if (!axis) continue;
    axis->comm().all_reduce(amax, ReduceOp::max);
  }
}

/// The axis over which the weight's dimension is sharded, if any.
const Axis* sharding_axis(const ParallelContext& parallel, const Parameter& weight, size_t dim) {
  return active_axis(parallel.of(weight.dims[dim].name));
}

/// The rows of the weight on this rank, for random numbers that are indexed by the global row.
int64_t first_row(const Parameter& weight, size_t dim) {
  for (const DimShard& shard : weight.shards)
    if (static_cast<size_t>(shard.dim) == dim && !shard.pieces.empty())
      return shard.pieces.front().global;
  return 0;
}

}  // namespace

bool PrecisionPlan::takes(const Scope& scope, bool head) const {
  if (!options_.quantized) return false;
  if (head) return options_.head;
  return scope.in_block() && scope.index() >= options_.first_plain &&
         scope.index() < options_.layers - options_.last_plain;
}

const QuantizedProducts* PrecisionPlan::of(const Scope& scope, Parameter& weight, bool head) {
  if (!takes(scope, head)) return nullptr;
  const ParallelContext& p = scope.parallel();
  size_t out = weight.dims.size() - 2;
  const Axis *rows = sharding_axis(p, weight, out), *cols = sharding_axis(p, weight, out + 1),
             *tokens = weight.expert ? nullptr : active_axis(p.cp);
  // The input of a product with the whole weight is the residual stream, whose tokens tp may shard.
  const bool of_stream = !weight.expert && !rows && !cols && !head && p.sequence_parallel;
  const Axis* stream = of_stream ? active_axis(p.tp) : nullptr;
  // Ranks of these axes have different tokens, so they use different random numbers.
  uint64_t place =
      weight.expert
          ? static_cast<uint64_t>(axis_index(p.expert_group))
          : static_cast<uint64_t>(axis_index(tokens) + axis_size(tokens) * axis_index(stream));
  Layer& layer = layers_.emplace_back(
      Layer{QuantizedProducts(options_.rule, name_key(cat(weight.name, ".products")) + 2 * place),
            nullptr,
            {}});
  QuantizedProducts& products = layer.products;
  products.first_output = first_row(weight, out);
  products.outputs = weight.dims[out].size;
  products.all_reduce_amax = [rows, cols, tokens, stream](const Tensor& amax,
                                                          QuantOperand operand) {
    if (operand == QuantOperand::input)
      share_over(amax, {cols, tokens, stream});
    else if (operand == QuantOperand::weight)
      share_over(amax, {cols, rows});
    else
      share_over(amax, {rows, tokens, stream});
  };
  if (options_.rule.recipe == QuantRecipe::delayed) {
    StateBuffer& history =
        scope.buffer(head ? "head_amax" : "amax",
                     static_cast<int64_t>(kQuantOperands) * options_.amax_history, 0);
    history.optional_in_checkpoint = true;
    layer.delayed = std::make_unique<DelayedScales>(history.values, options_.amax_algorithm);
    products.delayed = layer.delayed.get();
  }
  if (!head && (options_.rule.recipe == QuantRecipe::tensorwise ||
                options_.rule.recipe == QuantRecipe::delayed)) {
    MT_CHECK(!weight.quantized, "two layers with the weight ", weight.name);
    layer.weight.products = &products;
    for (const Axis* axis : {cols, rows})
      if (axis) layer.weight.axes.push_back(axis);
    weight.quantized = &layer.weight;
  }
  return &products;
}

void PrecisionPlan::end_step(ExecutionContext& ctx, bool updated, Communicator& replicas,
                             Communicator* tensor) {
  if (options_.rule.recipe != QuantRecipe::delayed || layers_.empty()) return;
  std::vector<float> recorded;
  for (const Layer& layer : layers_)
    for (float value : layer.delayed->recorded(ctx)) recorded.push_back(value);
  replicas.all_reduce(recorded, ReduceOp::max);
  if (tensor) tensor->all_reduce(recorded, ReduceOp::max);
  std::span<const float> rest = recorded;
  for (Layer& layer : layers_) {
    layer.delayed->end_step(rest.first(kQuantOperands), updated);
    rest = rest.subspan(kQuantOperands);
  }
}

}  // namespace mtrain
