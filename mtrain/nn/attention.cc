#include "mtrain/nn/attention.h"

namespace mtrain {
namespace {

/// The dimension of the attention's result.
Dim result_heads(const HeadLayout& whole, const HeadShard& shard) {
  return {"heads", whole.heads * whole.head_dim, shard.heads};
}

}  // namespace

Attention::Attention(const Scope& scope, Dim embed, const AttentionOptions& options)
    : options_(options),
      region_(scope, options.shared_input),
      heads_(shard_heads(options.layout, scope.parallel().tp)),
      qkv_(scope / "qkv", {"heads", options.layout.width(), heads_.qkv}, embed,
           {options.init_std, options.bias, qkv_matrices(options.layout, embed.size)}),
      norm_(options.qk_norm ? std::optional<QkNorm>(std::in_place, scope, options.layout, heads_,
                                                    *options.qk_norm)
                            : std::nullopt),
      gate_(options.gate ? std::optional<Linear>(std::in_place, scope / "gate",
                                                 result_heads(options.layout, heads_), embed,
                                                 LinearOptions{options.init_std, options.bias})
                         : std::nullopt),
      out_(scope / "out", embed, result_heads(options.layout, heads_),
           {options.out_init_std, options.out_bias.value_or(options.bias)}),
      core_(scope, options, heads_) {
  options_.layout = heads_.local;
  if (heads_.copied_rows == 0) return;
  const Axis* copies = scope.parallel().kv_copies;
  MT_CHECK(copies, "ranks share key/value heads, but have no group");
  std::vector<Parameter*> of_rows = {&qkv_.weight};
  if (qkv_.bias) of_rows.push_back(qkv_.bias);
  if (const Adapter* adapter = qkv_.adapter())
    for (Parameter* p : adapter->of_rows()) of_rows.push_back(p);
  for (Parameter* p : of_rows) {
    int64_t row = p->numel() / p->local[0];
    p->partial.push_back({copies, heads_.copied_begin * row, heads_.copied_rows * row});
  }
}

/// Queries, keys and values as the product over tokens takes them, computed in place.
Tensor Attention::heads_of(Tensor qkv, const ModelInput& input) const {
  if (norm_) qkv = (*norm_)(std::move(qkv));
  if (options_.clip > 0) qkv = clamp(std::move(qkv), options_.clip);
  if (options_.rope) qkv = rope(std::move(qkv), options_.layout, *options_.rope, input.positions_T);
  return qkv;
}

Tensor Attention::operator()(const Tensor& x, const ModelInput& input,
                             const Tensor& residual) const {
  Tensor qkv, gate;
  if (gate_) {
    auto [heads, gates] = region_.project(x, {qkv_, *gate_});
    qkv = std::move(heads), gate = std::move(gates);
  } else {
    auto [heads] = region_.project(x, {qkv_});
    qkv = std::move(heads);
  }
  qkv = heads_of(std::move(qkv), input);
  Tensor result = core_(qkv, input);
  if (gate_) result = sigmoid_mul(gate, result);
  return out_.leave(region_, result, residual);
}

}  // namespace mtrain
