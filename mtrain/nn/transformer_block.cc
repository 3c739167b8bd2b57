#include "mtrain/nn/transformer_block.h"

namespace mtrain {
namespace {

std::optional<Norm> norm_if(bool there, const DecoderSettings& c, const Scope& scope) {
  return there ? std::optional<Norm>(std::in_place, scope, c.block.norm_options(c.eps()), c.embed())
               : std::nullopt;
}

AttentionOptions attention_of(const DecoderSettings& c, const RopeTable& rope, int64_t index) {
  AttentionOptions options = c.attention_options(rope, index);
  // The MLP reads the same tensor: the norm that both share, or the stream itself.
  options.shared_input = c.block.shares_norm() || !c.block.norms_before();
  return options;
}

Tensor normed(const std::optional<Norm>& norm, const Tensor& x_TD) {
  return norm ? (*norm)(x_TD) : x_TD;
}

}  // namespace

TransformerBlock::TransformerBlock(const DecoderSettings& c, const Scope& s, int64_t index,
                                   const RopeTable& rope, const MoeOptions* experts)
    : parallel_(c.block.is_parallel()),
      multiplier_(static_cast<float>(c.block.residual_multiplier)),
      norm1_(norm_if(c.block.norms_before(), c, s / "norm1")),
      attn_(c.latent ? std::nullopt
                     : std::optional<Attention>(std::in_place, s / "attn", c.embed(),
                                                attention_of(c, rope, index))),
      latent_attn_(c.latent
                       ? std::optional<LatentAttention>(std::in_place, s / "attn", c.embed(),
                                                        attention_of(c, rope, index), *c.latent)
                       : std::nullopt),
      norm1_after_(norm_if(c.block.norms_after(), c, s / "norm1_after")),
      norm2_(norm_if(c.block.norms_before() && !c.block.shares_norm(), c, s / "norm2")) {
  MlpOptions options = c.block.mlp_options(c.std(), c.out_std());
  options.shared_input = !c.block.norms_before();
  if (experts)
    moe_.emplace(s / "mlp", c.embed(), *experts);
  else
    mlp_.emplace(s / "mlp", c.embed(), c.mlp(), options);
  norm2_after_ = norm_if(c.block.norms_after(), c, s / "norm2_after");
}

Tensor TransformerBlock::operator()(Tensor x_TD, const ModelInput& input) const {
  if (!parallel_) {
    x_TD = attention(normed(norm1_, x_TD), x_TD, input);
    return mlp(normed(norm2_, x_TD), x_TD, input);
  }
  Tensor shared_TD = norm2_ ? Tensor() : normed(norm1_, x_TD);
  Tensor y_TD = attention(norm2_ ? normed(norm1_, x_TD) : shared_TD, x_TD, input);
  return mlp(norm2_ ? normed(norm2_, x_TD) : shared_TD, y_TD, input);
}

Tensor TransformerBlock::attention(const Tensor& normed_TD, const Tensor& stream_TD,
                                   const ModelInput& input) const {
  return add_to(stream_TD, norm1_after_, [&](const Tensor& residual_TD) {
    return latent_attn_ ? (*latent_attn_)(normed_TD, input, residual_TD)
                        : (*attn_)(normed_TD, input, residual_TD);
  });
}

Tensor TransformerBlock::mlp(const Tensor& normed_TD, const Tensor& stream_TD,
                             const ModelInput& input) const {
  return add_to(stream_TD, norm2_after_, [&](const Tensor& residual_TD) {
    return moe_ ? (*moe_)(normed_TD, input, residual_TD) : (*mlp_)(normed_TD, residual_TD);
  });
}

/// stream + multiplier * after(layer). Where nothing comes between them, the layer's last product
/// adds the stream as it stores its result.
template <class Layer>
Tensor TransformerBlock::add_to(const Tensor& stream_TD, const std::optional<Norm>& after,
                                Layer&& layer) const {
  if (!after && multiplier_ == 1) return layer(stream_TD);
  Tensor y_TD = normed(after, layer(Tensor()));
  return multiplier_ == 1 ? add(stream_TD, y_TD) : add_scaled(stream_TD, y_TD, multiplier_);
}

}  // namespace mtrain
