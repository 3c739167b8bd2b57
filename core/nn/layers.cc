#include "mtrain/nn/layers.h"

#include <cmath>

namespace mtrain {

Model::~Model() = default;

Linear::Linear(const Scope& scope, Dim out, Dim in, LinearOptions options)
    : weight(scope.param("weight", {out, in}, Init::normal(options.init_std), true)),
      bias(options.bias ? &scope.param("bias", {out}, Init::zeros(), false) : nullptr) {}

Tensor Linear::operator()(const Tensor& x, const Tensor& residual) const {
  return linear(x, weight.use(), bias ? bias->use() : Tensor(), residual);
}

Embedding::Embedding(const Scope& scope, Dim rows, Dim embed, float init_std)
    : weight(scope.param("weight", {rows, embed}, Init::normal(init_std), true)) {}

Norm::Norm(const Scope& scope, Kind kind, Dim embed, float eps)
    : weight_(scope.param("weight", {embed}, Init::ones(), false)),
      bias_(kind == Kind::layer ? &scope.param("bias", {embed}, Init::zeros(), false) : nullptr),
      eps_(eps) {}

Tensor Norm::operator()(const Tensor& x) const {
  return bias_ ? layer_norm(x, weight_.use(), bias_->use(), eps_) : rms_norm(x, weight_.use(), eps_);
}

Attention::Attention(const Scope& scope, Dim embed, const AttentionOptions& options)
    : options_(options),
      qkv_(scope / "qkv", {"heads", options.layout.width()}, embed, {options.init_std, options.bias}),
      out_(scope / "out", embed, {"heads", options.layout.heads * options.layout.head_dim},
           {options.out_init_std, options.bias}) {}

Tensor Attention::operator()(const Tensor& x, const ModelInput& input, const Tensor& residual) const {
  Tensor qkv = qkv_(x);
  if (options_.rope) qkv = rope(std::move(qkv), options_.layout, *options_.rope, input.positions_T);
  float scale = 1.0f / std::sqrt(static_cast<float>(options_.layout.head_dim));
  return out_(attention(qkv, options_.layout, input.bounds, scale, options_.causal), residual);
}

GatedMlp::GatedMlp(const Scope& scope, Dim embed, Dim mlp, float init_std, float out_init_std)
    : gate_(scope / "gate", mlp, embed, {init_std}),
      up_(scope / "up", mlp, embed, {init_std}),
      down_(scope / "down", embed, mlp, {out_init_std}) {}

Tensor GatedMlp::operator()(const Tensor& x, const Tensor& residual) const {
  return down_(silu_mul(gate_(x), up_(x)), residual);
}

Mlp::Mlp(const Scope& scope, Dim embed, Dim mlp, GeluKind kind, LinearOptions options, float out_init_std)
    : kind_(kind), up_(scope / "up", mlp, embed, options), down_(scope / "down", embed, mlp, {out_init_std, options.bias}) {}

Tensor Mlp::operator()(const Tensor& x, const Tensor& residual) const { return down_(gelu(up_(x), kind_), residual); }

LmHead::LmHead(const Scope& scope, Dim vocab, Dim embed, int64_t valid_vocab, Parameter* tied, float init_std)
    : weight_(tied ? *tied : scope.param("weight", {vocab, embed}, Init::normal(init_std), true)),
      valid_vocab_(valid_vocab) {}

Tensor LmHead::operator()(const Tensor& x, const ModelInput& input) const {
  if (!input.targets_T.defined()) return linear(x, weight_.use());
  return linear_cross_entropy(x, weight_.use(), input.targets_T, valid_vocab_, input.loss_weight);
}

std::vector<HfPiece> hf_qkv_pieces(const HeadLayout& layout, const std::string& q, const std::string& k,
                                   const std::string& v, bool transpose) {
  std::vector<HfPiece> pieces;
  bool fused = q == k && k == v;  // one matrix that stacks all queries, then all keys, then all values
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
