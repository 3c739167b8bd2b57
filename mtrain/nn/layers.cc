#include "mtrain/nn/layers.h"

#include <cmath>

#include "mtrain/nn/vocabulary.h"

namespace mtrain {

Linear::Linear(const Scope& scope, Dim out, Dim in, LinearOptions options)
    : weight(scope.param("weight", {out, in}, Init::normal(options.init_std), true,
                         ParamRole::matrix)),
      bias(options.bias ? &scope.param("bias", {out}, Init::zeros(), false, ParamRole::bias)
                        : nullptr),
      quantized_(scope.quantized_products(weight)) {}

Tensor Linear::operator()(const Tensor& x, const Tensor& residual) const {
  return linear(x, weight.use(), bias ? bias->use() : Tensor(), residual, quantized_);
}

Tensor Linear::leave(const Region& region, const Tensor& x, const Tensor& residual) const {
  if (!region.sharded()) return (*this)(x, residual);
  return add_bias(region.leave(x, weight.use(), quantized_), bias ? bias->use() : Tensor(),
                  residual);
}

Embedding::Embedding(const Scope& scope, Dim rows, Dim embed, float init_std)
    : weight(
          scope.param("weight", {rows, embed}, Init::normal(init_std), true, ParamRole::embedding)),
      region_(scope),
      sharded_(active_axis(scope.parallel().of(rows.name)) != nullptr),
      first_row_(sharded_ ? even_piece(rows.size, scope.parallel().of(rows.name)).global : 0) {}

Tensor Embedding::operator()(const Tensor& ids) const {
  return sharded_ ? region_.leave(embedding(weight.use(), ids, first_row_))
                  : embedding(weight.use(), region_.own_tokens(ids));
}

Norm::Norm(const Scope& scope, Kind kind, Dim embed, float eps)
    : weight_(scope.param("weight", {embed}, Init::ones(), false, ParamRole::norm)),
      bias_(kind == Kind::layer
                ? &scope.param("bias", {embed}, Init::zeros(), false, ParamRole::norm)
                : nullptr),
      eps_(eps) {}

Tensor Norm::operator()(const Tensor& x) const {
  return bias_ ? layer_norm(x, weight_.use(), bias_->use(), eps_)
               : rms_norm(x, weight_.use(), eps_);
}

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

GatedMlp::GatedMlp(const Scope& scope, Dim embed, Dim mlp, float init_std, float out_init_std)
    : region_(scope),
      plan_(&scope.blocks()),
      gate_(scope / "gate", mlp, embed, {init_std}),
      up_(scope / "up", mlp, embed, {init_std}),
      down_(scope / "down", embed, mlp, {out_init_std}) {}

Tensor GatedMlp::operator()(const Tensor& x, const Tensor& residual) const {
  auto mlp = [this](const Tensor& normed, const Tensor& added) {
    auto [gate, up] = region_.project(normed, {gate_, up_});
    return down_.leave(region_, silu_mul(gate, up), added);
  };
  return plan_->run(RecomputePart::mlp, mlp, x, residual);
}

Mlp::Mlp(const Scope& scope, Dim embed, Dim mlp, GeluKind kind, LinearOptions options,
         float out_init_std)
    : kind_(kind),
      region_(scope),
      plan_(&scope.blocks()),
      up_(scope / "up", mlp, embed, options),
      down_(scope / "down", embed, mlp, {out_init_std, options.bias}) {}

Tensor Mlp::operator()(const Tensor& x, const Tensor& residual) const {
  auto mlp = [this](const Tensor& normed, const Tensor& added) {
    auto [up] = region_.project(normed, {up_});
    return down_.leave(region_, gelu(up, kind_), added);
  };
  return plan_->run(RecomputePart::mlp, mlp, x, residual);
}

Parameter* tied_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                      float init_std) {
  if (!stage.first && !stage.last) return nullptr;
  Parameter* table = scope.find("weight");
  const Axis* embedding_group = active_axis(scope.parallel().embedding_group);
  if (!embedding_group || stage.first == stage.last) {  // one rank has both
    MT_CHECK(table != nullptr, scope.path(), ": a head is tied to a missing embedding");
    return table;
  }
  if (!stage.first) {
    table = &Embedding(scope, std::move(rows), std::move(embed), init_std).weight;
    table->is_primary = false;
  }
  table->partial.push_back({embedding_group, 0, table->numel()});
  return table;
}

namespace {

/// A model whose table and head are on one rank adds the bias next to the table itself, because
/// parameters that one op reads must be gathered together (optim/param_buckets.h).
Parameter* head_bias(const Scope& scope, const Dim& vocab) {
  Parameter* there = scope.find("bias");
  return there ? there : &scope.param("bias", {vocab}, Init::zeros(), false, ParamRole::bias);
}

}  // namespace

LmHead::LmHead(const Scope& scope, Dim vocab, Dim embed, int64_t valid_vocab, Parameter* tied,
               float init_std, bool bias)
    : region_(scope),
      weight_(tied ? *tied
                   : scope.param("weight", {vocab, embed}, Init::normal(init_std), true,
                                 ParamRole::head)),
      bias_(bias ? head_bias(scope, vocab) : nullptr),
      quantized_(scope.quantized_products(weight_, true)),
      valid_vocab_(valid_vocab),
      part_(vocabulary_part(scope.parallel().of(vocab.name), vocab.size)) {}

Tensor LmHead::operator()(const Tensor& x, const ModelInput& input) const {
  Tensor own = region_.enter(x), bias = bias_ ? bias_->use() : Tensor();
  if (!input.targets_T.defined()) {
    MT_CHECK(!part_.join,
             "logits of a sharded vocabulary: each rank has only the logits of its own ids");
    return linear(own, weight_.use(), bias, {}, quantized_);
  }
  return linear_cross_entropy(own, weight_.use(), input.targets_T, valid_vocab_, input.loss_weight,
                              part_, input.head_gradients, quantized_, bias);
}

std::vector<HfPiece> hf_qkv_pieces(const HeadLayout& layout, const std::string& q,
                                   const std::string& k, const std::string& v, bool transpose) {
  std::vector<HfPiece> pieces;
  bool fused =
      q == k && k == v;  // one matrix that stacks all queries, then all keys, then all values
  int64_t query_rows = layout.queries_per_group() * layout.head_dim, e = layout.head_dim;
  int64_t k_base = fused ? layout.heads * e : 0, v_base = fused ? k_base + layout.groups * e : 0;
  for (int64_t g = 0; g < layout.groups; ++g) {
    int64_t row = g * layout.group_stride();
    pieces.push_back({q, g * query_rows, row, query_rows, transpose});
    pieces.push_back({k, k_base + g * e, row + query_rows, e, transpose});
    pieces.push_back({v, v_base + g * e, row + query_rows + e, e, transpose});
  }
  return pieces;
}

}  // namespace mtrain
