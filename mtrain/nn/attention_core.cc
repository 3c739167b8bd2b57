#include "mtrain/nn/attention_core.h"

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

}  // namespace

AttentionCore::AttentionCore(const Scope& scope, const AttentionOptions& options,
                             const HeadShard& heads)
    : plan_(&scope.blocks()),
      layout_(heads.local),
      scores_(scores_of(options, heads, scope)),
      context_{scope.parallel().cp, scope.parallel().cp_a2a_group},
      context_kind_(scope.parallel().context_kind(scope.index())) {
  add_sinks(scope, options, heads);
}

void AttentionCore::add_sinks(const Scope& scope, const AttentionOptions& options,
                              const HeadShard& heads) {
  if (options.sinks == AttentionSinks::zero) {
    zero_sinks_ = scope.context().zeros({heads.local.heads}, scope.dtype());
    if (active_axis(scope.parallel().tp)) zero_sinks_.set_placement(Placement::S(0));
  }
  if (options.sinks != AttentionSinks::learned) return;
  std::vector<ShardPiece> pieces = heads.heads;  // of head_dim columns per head
  for (ShardPiece& piece : pieces)
    for (int64_t* columns : {&piece.global, &piece.local, &piece.size})
      *columns /= options.layout.head_dim;
  sinks_ = &scope.param("sinks", {{"heads", options.layout.heads, std::move(pieces)}},
                        Init::normal(options.init_std), false);
}

/// The first tokens of texts attend only to each other, for which there are faster kernels.
Tensor AttentionCore::with_cache(const Tensor& qkv, const ModelInput& input) const {
  MT_CHECK(!input.cp_slice, "a cache holds whole texts");
  KeyValueCache& cache = *input.cache;
  const Tensor sinks = sinks_ ? sinks_->use() : zero_sinks_, &rows = cache.rows(this, layout_, qkv);
  store_keys(qkv, layout_, rows, cache.spans());
  return cache.begins() ? attention(qkv, layout_, input.bounds, scores_, sinks)
                        : cached_attention(qkv, layout_, rows, cache.spans(), scores_, sinks);
}

Tensor AttentionCore::operator()(const Tensor& qkv, const ModelInput& input) const {
  if (input.cache) return with_cache(qkv, input);
  auto core = [this, bounds = input.bounds, slice = input.cp_slice](const Tensor& heads) {
    Tensor sinks = sinks_ ? sinks_->use() : zero_sinks_;
    if (!slice) return attention(heads, layout_, bounds, scores_, sinks);
    return context_attention(heads, layout_, slice, context_, context_kind_, scores_, sinks);
  };
  return plan_->run(RecomputePart::core_attn, core, qkv);
}

}  // namespace mtrain
