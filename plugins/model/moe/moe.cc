// Decoders with experts, such as Mixtral and Qwen3-MoE: an embedding, blocks, a last norm and a
// head (mtrain/nn/decoder.h). T tokens (batch folded in), D embed.
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/nn/moe_step.h"
#include "mtrain/plugin/plugin.h"
#include "settings.h"

namespace mtrain {
namespace {

MoeOptions options_of(const MoeDecoderSettings& c) {
  MoeOptions options = c.moe.options(c.ffn_hidden_size);
  options.init_std = c.std();
  options.out_init_std = c.out_std();
  return options;
}

/// x = x + attention(norm1(x)); x = x + mlp(norm2(x)), where the MLP is a mixture of experts in
/// sparse blocks and a gated MLP in dense ones.
class MoeBlock final : public DecoderBlock {
 public:
  MoeBlock(const MoeDecoderSettings& c, const Scope& s, bool sparse, const RopeTable& rope,
           std::vector<Moe*>& mixtures)
      : norm1_(s / "norm1", Norm::Kind::rms, c.embed(), c.eps()),
        attn_(s / "attn", c.embed(), c.attention_options(rope)),
        norm2_(s / "norm2", Norm::Kind::rms, c.embed(), c.eps()) {
    if (sparse)
      mixtures.push_back(&moe_.emplace(s / "mlp", c.embed(), options_of(c)));
    else
      mlp_.emplace(s / "mlp", c.embed(), c.mlp(), c.std(), c.out_std());
  }

  Tensor operator()(Tensor x_TD, const ModelInput& input) const override {
    x_TD = attn_(norm1_(x_TD), input, x_TD);
    return moe_ ? (*moe_)(norm2_(x_TD), input, x_TD) : (*mlp_)(norm2_(x_TD), x_TD);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  std::optional<GatedMlp> mlp_;
  std::optional<Moe> moe_;
};

class MoeDecoder final : public Decoder {
 public:
  MoeDecoder(const MoeDecoderSettings& c, ModelContext& context)
      : MoeDecoder(c, context, std::vector<Moe*>()) {}

  std::vector<StepFigure> end_step(bool updated) override {
    return end_moe_step(mixtures_, context().scope.parallel(), updated);
  }

  double flops_per_token(int64_t seq_length) const override {
    auto d = static_cast<double>(config_.hidden_size);
    double products = head_products();
    for (int64_t i = 0; i < config_.layers; ++i) {
      const MoeSettings& moe = config_.moe;
      int64_t ffn = moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config_.ffn_hidden_size;
      int64_t width = config_.sparse(i) ? moe.top_k * ffn + moe.shared_ffn_hidden_size
                                        : config_.ffn_hidden_size;
      products += attention_products(seq_length) + 3 * d * static_cast<double>(width);
      if (config_.sparse(i)) products += d * static_cast<double>(moe.experts);
    }
    return 6 * products;
  }

 private:
  // Blocks register their mixtures while the base is constructed, so the list must be constructed
  // before it.
  MoeDecoder(const MoeDecoderSettings& c, ModelContext& context, std::vector<Moe*>&& mixtures)
      : Decoder(c, context,
                [&](const Scope& s, int64_t i, const RopeTable& rope) {
                  return std::make_unique<MoeBlock>(c, s, c.sparse(i), rope, mixtures);
                }),
        config_(c),
        mixtures_(std::move(mixtures)) {}

  MoeDecoderSettings config_;
  std::vector<Moe*> mixtures_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("moe", "decoders with experts: Mixtral, Qwen3-MoE") {
  using namespace mtrain;
  registry.add<Model, MoeDecoder, MoeDecoderSettings>(
      "moe", "decoder with experts: Mixtral, Qwen3-MoE, DeepSeek-V3");
}
