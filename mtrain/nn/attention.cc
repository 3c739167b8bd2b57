#include "mtrain/nn/attention.h"

#include <cmath>

namespace mtrain {
namespace {

AttentionScores scores_of(const AttentionOptions& o, const HeadShard& heads, const Scope& scope) {
  return {.scale = o.scale > 0 ? o.scale : 1.0f / std::sqrt(static_cast<float>(o.layout.head_dim)),
          .causal = o.causal,
          .window = o.window,
          .cap = o.cap,
          .dropout = o.dropout,
          .dropout_key = name_key((scope / "weights").path()),
          .first_head = heads.heads.empty() ? 0 : heads.heads[0].global / o.layout.head_dim};
}

/// The dimension of the attention's result.
Dim all_heads(const HeadLayout& whole, const HeadShard& shard) {
  return {"heads", whole.heads * whole.head_dim, shard.heads};
}

}  // namespace

Attention::Attention(const Scope& scope, Dim embed, const AttentionOptions& options)
    : options_(options),
      region_(scope, options.shared_input),
      plan_(&scope.blocks()),
      heads_(shard_heads(options.layout, scope.parallel().tp)),
      context_{scope.parallel().cp, scope.parallel().cp_near},
      context_kind_(scope.parallel().context_kind(scope.index())),
      qkv_(scope / "qkv", {"heads", options.layout.width(), heads_.qkv}, embed,
           {options.init_std, options.bias}),
      norm_(options.qk_norm ? std::optional<QkNorm>(std::in_place, scope, options.layout, heads_,
                                                    *options.qk_norm)
                            : std::nullopt),
      gate_(options.gate ? std::optional<Linear>(std::in_place, scope / "gate",
                                                 all_heads(options.layout, heads_), embed,
                                                 LinearOptions{options.init_std, options.bias})
                         : std::nullopt),
      out_(scope / "out", embed, all_heads(options.layout, heads_),
           {options.out_init_std, options.out_bias.value_or(options.bias)}) {
  qkv_.weight.matrices = qkv_matrices(options.layout, embed.size);
  scores_ = scores_of(options, heads_, scope);
  add_sinks(scope);
  options_.layout = heads_.local;
  if (heads_.copied_rows == 0) return;
  const Axis* copies = scope.parallel().kv_copies;
  MT_CHECK(copies, "ranks share key/value heads, but have no group");
  for (Parameter* p : {&qkv_.weight, qkv_.bias}) {
    if (!p) continue;
    int64_t row = p->numel() / p->local[0];
    p->partial.push_back({copies, heads_.copied_begin * row, heads_.copied_rows * row});
  }
}

void Attention::add_sinks(const Scope& scope) {
  if (options_.sinks == AttentionSinks::zero) {
    zero_sinks_ = scope.context().zeros({heads_.local.heads}, scope.dtype());
    if (active_axis(scope.parallel().tp)) zero_sinks_.set_placement(Placement::S(0));
  }
  if (options_.sinks != AttentionSinks::learned) return;
  std::vector<ShardPiece> pieces = heads_.heads;  // of head_dim columns per head
  for (ShardPiece& piece : pieces)
    for (int64_t* columns : {&piece.global, &piece.local, &piece.size})
      *columns /= options_.layout.head_dim;
  sinks_ = &scope.param("sinks", {{"heads", options_.layout.heads, std::move(pieces)}},
                        Init::normal(options_.init_std), false);
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
  auto core = [this, bounds = input.bounds, slice = input.cp_slice](const Tensor& heads) {
    const HeadLayout& layout = options_.layout;
    Tensor sinks = sinks_ ? sinks_->use() : zero_sinks_;
    if (!slice) return attention(heads, layout, bounds, scores_, sinks);
    return context_attention(heads, layout, slice, context_, context_kind_, scores_, sinks);
  };
  Tensor result = plan_->run(RecomputePart::core_attn, core, qkv);
  if (gate_) result = sigmoid_mul(gate, result);
  return out_.leave(region_, result, residual);
}

}  // namespace mtrain
