#include "mtrain/nn/qk_norm.h"

namespace mtrain {
namespace {

using Rows = HeadNormForm::Rows;

HeadNormForm form_of(const HeadLayout& whole, const HeadShard& heads, const QkNormOptions& options,
                     const Axis* tp) {
  HeadNormForm form{.rows = options.rows,
                    .layer = options.layer,
                    .eps = options.eps,
                    .offset = options.zero_centered ? 1.0f : 0.0f};
  if (options.rows != Rows::all_heads || !active_axis(tp)) return form;
  form.whole = whole;
  form.counts_keys = heads.keys.front().is_primary;
  form.join = [tp](const Tensor& sums) {
    if (sums.context().backend().computes()) tp->comm().all_reduce(sums);
  };
  return form;
}

/// Every rank computes the gradient from its own heads: with sequence parallelism a replicated
/// parameter's gradient is a partial sum anyway, and here it is without, too.
void add_over_heads(Parameter& p, const ParallelContext& parallel) {
  if (!active_axis(parallel.tp) || parallel.sequence_parallel) return;
  p.placement = Placement::R();
  p.partial.push_back({parallel.tp, 0, p.numel()});
}

std::vector<ShardPiece> in_units(std::vector<ShardPiece> pieces, int64_t unit) {
  for (ShardPiece& piece : pieces) piece.global /= unit, piece.local /= unit, piece.size /= unit;
  return pieces;
}

}  // namespace

QkNorm::Weights QkNorm::add(const Scope& scope, bool keys, const HeadShard& shard, int64_t heads,
                            const QkNormOptions& options) const {
  const int64_t e = layout_.head_dim;
  const std::vector<ShardPiece>& pieces = keys ? shard.keys : shard.heads;
  Dims dims = {{"head_dim", e}};
  if (options.rows == Rows::own_head)
    dims = {{"heads", heads, in_units(pieces, e)}, {"head_dim", e}};
  if (options.rows == Rows::all_heads) dims = {{"heads", heads * e, pieces}};
  Weights weights{
      &scope.param("weight", dims, options.zero_centered ? Init::zeros() : Init::ones(), false,
                   ParamRole::norm),
      options.bias ? &scope.param("bias", dims, Init::zeros(), false, ParamRole::norm) : nullptr};
  for (Parameter* p : {weights.weight, weights.bias}) {
    if (!p) continue;
    p->matrices.clear();  // a table of vectors
    if (options.rows == Rows::head)
      add_over_heads(*p, scope.parallel());
    else if (keys && shard.copied_rows > 0)
      p->partial.push_back({scope.parallel().kv_copies, 0, p->numel()});
  }
  return weights;
}

QkNorm::QkNorm(const Scope& scope, const HeadLayout& whole, const HeadShard& heads,
               const QkNormOptions& options)
    : layout_(heads.local),
      form_(form_of(whole, heads, options, scope.parallel().tp)),
      queries_(add(scope / "q_norm", false, heads, whole.heads, options)),
      keys_(add(scope / "k_norm", true, heads, whole.groups, options)) {
  MT_USER_CHECK(options.rows != Rows::all_heads || !options.layer, ErrorClass::config,
                "a LayerNorm over all heads of a token is not supported",
                "normalize each head (attention.qk_norm_scope=head), or use RMSNorm "
                "(attention.qk_norm_kind=rms)");
  MT_USER_CHECK(options.rows != Rows::all_heads || !options.zero_centered, ErrorClass::config,
                "a norm over all heads of a token with the factor 1 + weight is not supported",
                "normalize each head (attention.qk_norm_scope=head), or leave out "
                "model.norm_zero_centered");
}

Tensor QkNorm::operator()(Tensor&& qkv) const {
  auto used = [](Parameter* p) { return p ? p->use() : Tensor(); };
  return head_norm(
      std::move(qkv), layout_, form_,
      {used(queries_.weight), used(queries_.bias), used(keys_.weight), used(keys_.bias)});
}

}  // namespace mtrain
