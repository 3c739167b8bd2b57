// TransformerBlock: the block of the decoders that come with mtrain, in all its variants: kinds and
// positions of norms, attention and MLP one after the other or side by side, a mixture of experts
// in place of the MLP. Adds its parameters to the run's list; for the rank's own thread.
// Dimensions: T tokens, D embed.
#pragma once
#include <optional>

#include "mtrain/nn/decoder.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/moe.h"

namespace mtrain {

/// Parameters: attn and mlp; norm1 and norm2, which normalize their inputs; norm1_after and
/// norm2_after, which normalize their outputs. The settings determine which of these norms exist.
class MT_API TransformerBlock final : public DecoderBlock {
 public:
  /// Block `index` of the model. `experts`: the MLP is a mixture of experts; null: it is one MLP.
  TransformerBlock(const DecoderSettings& settings, const Scope& scope, int64_t index,
                   const RopeTable& rope, const MoeOptions* experts = nullptr);
  Tensor operator()(Tensor x_TD, const ModelInput& input) const override;
  /// The mixture of experts; null: the block has none.
  Moe* experts() { return moe_ ? &*moe_ : nullptr; }

 private:
  Tensor attention(const Tensor& normed_TD, const Tensor& stream_TD, const ModelInput& input) const;
  Tensor mlp(const Tensor& normed_TD, const Tensor& stream_TD, const ModelInput& input) const;
  template <class Layer>
  Tensor add_to(const Tensor& stream_TD, const std::optional<Norm>& after, Layer&& layer) const;

  bool parallel_;
  float multiplier_;  // of what the layers add to the stream
  std::optional<Norm> norm1_;
  std::optional<Attention> attn_;
  std::optional<LatentAttention> latent_attn_;
  std::optional<Norm> norm1_after_, norm2_;
  std::optional<Mlp> mlp_;
  std::optional<Moe> moe_;
  std::optional<Norm> norm2_after_;
};

}  // namespace mtrain
