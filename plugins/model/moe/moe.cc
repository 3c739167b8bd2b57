// Decoders with experts, such as Mixtral and Qwen3-MoE: an embedding, blocks, a last norm and a
// head (mtrain/nn/decoder.h). In sparse blocks the MLP is a mixture of experts
// (mtrain/nn/transformer_block.h). T tokens (batch folded in), D embed.
#include <memory>
#include <vector>

#include "mtrain/nn/moe_step.h"
#include "mtrain/nn/transformer_block.h"
#include "mtrain/plugin/plugin.h"
#include "settings.h"

namespace mtrain {
namespace {

MoeOptions options_of(const MoeDecoderSettings& c) {
  MoeOptions options = c.moe.options(c.ffn_hidden_size);
  options.init_std = c.std();
  options.out_init_std = c.out_std();
  options.activation = c.block.mlp_activation();
  MT_USER_CHECK(options.swish == SwishGate() || options.activation == Activation::silu,
                ErrorClass::config,
                cat("model.moe.activation_clamp, swish_factor and glu_offset cannot be combined "
                    "with model.activation=",
                    c.block.activation),
                "they are parts of silu: set model.activation=silu, or leave them out");
  return options;
}

class MoeDecoder final : public Decoder {
 public:
  MoeDecoder(const MoeDecoderSettings& c, ModelContext& context)
      : MoeDecoder(c.resolved(), context, std::vector<Moe*>()) {}

  std::vector<StepFigure> end_step(bool updated) override {
    std::vector<StepFigure> all = end_moe_step(mixtures_, context().scope.parallel(), updated);
    for (StepFigure& further : Decoder::end_step(updated)) all.push_back(std::move(further));
    return all;
  }

  /// With a capacity, the tokens of a forward compete for their experts.
  bool continues_texts() const override { return !config_.moe.capacity_factor; }

  double flops_per_token(int64_t seq_length) const override {
    double products = head_products();
    for (int64_t i = 0; i < config_.layers; ++i) products += block_products(seq_length, i);
    products += mtp_products(block_products(seq_length, config_.layers - 1));
    return 6 * products;
  }

 private:
  // Blocks register their mixtures while the base is constructed, so the list must be constructed
  // before it.
  MoeDecoder(const MoeDecoderSettings& c, ModelContext& context, std::vector<Moe*>&& mixtures)
      : Decoder(c, context,
                [&, experts = options_of(c)](const Scope& s, int64_t i, const RopeTable& rope) {
                  auto block = std::make_unique<TransformerBlock>(c, s, i, rope,
                                                                  c.sparse(i) ? &experts : nullptr);
                  if (Moe* mixture = block->experts()) mixtures.push_back(mixture);
                  return block;
                }),
        config_(c),
        mixtures_(std::move(mixtures)) {}

  double block_products(int64_t seq_length, int64_t i) const {
    const double attention = attention_products(seq_length, i);
    if (!config_.sparse(i)) return attention + mlp_products(config_.ffn_hidden_size);
    const MoeSettings& moe = config_.moe;
    const int64_t ffn = moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config_.ffn_hidden_size;
    const auto d = static_cast<double>(config_.hidden_size),
               latent = static_cast<double>(moe.latent_size);
    const double chosen = mlp_products(moe.top_k * ffn);
    return attention + mlp_products(moe.shared_width(ffn)) + d * static_cast<double>(moe.experts) +
           (latent > 0 ? chosen * latent / d + 2 * d * latent : chosen);
  }

  MoeDecoderSettings config_;
  std::vector<Moe*> mixtures_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("moe", "decoders with experts: Mixtral, Qwen3-MoE, DeepSeek-V3") {
  using namespace mtrain;
  registry.add<Model, MoeDecoder, MoeDecoderSettings>(
      "moe", "decoder with experts: Mixtral, Qwen3-MoE, DeepSeek-V3");
}
