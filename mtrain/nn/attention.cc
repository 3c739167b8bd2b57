#include "mtrain/nn/attention.h"

#include <cmath>

namespace mtrain {

Attention::Attention(const Scope& scope, Dim embed, const AttentionOptions& options)
    : options_(options),
      region_(scope),
      plan_(&scope.blocks()),
      heads_(shard_heads(options.layout, scope.parallel().tp)),
      context_{scope.parallel().cp, scope.parallel().cp_near},
      context_kind_(scope.parallel().context_kind(scope.index())),
      qkv_(scope / "qkv", {"heads", options.layout.width(), heads_.qkv}, embed,
           {options.init_std, options.bias}),
      out_(scope / "out", embed,
           {"heads", options.layout.heads * options.layout.head_dim, heads_.heads},
           {options.out_init_std, options.bias}) {
  qkv_.weight.matrices = qkv_matrices(options.layout, embed.size);
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

Tensor Attention::operator()(const Tensor& x, const ModelInput& input,
                             const Tensor& residual) const {
  auto [qkv] = region_.project(x, {qkv_});
  if (options_.rope) qkv = rope(std::move(qkv), options_.layout, *options_.rope, input.positions_T);
  float scale = 1.0f / std::sqrt(static_cast<float>(options_.layout.head_dim));
  auto core = [this, scale, bounds = input.bounds, slice = input.cp_slice](const Tensor& heads) {
    const HeadLayout& layout = options_.layout;
    if (!slice) return attention(heads, layout, bounds, scale, options_.causal);
    return context_attention(heads, layout, slice, context_, context_kind_, scale, options_.causal);
  };
  return out_.leave(region_, plan_->run(RecomputePart::core_attn, core, qkv), residual);
}

}  // namespace mtrain
