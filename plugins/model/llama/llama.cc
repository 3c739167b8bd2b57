// Llama 2 and 3 and models of the same architecture: an embedding, blocks, a last norm and a head
// (mtrain/nn/decoder.h). T tokens (batch folded in), D embed.
#include <memory>

#include "mtrain/nn/decoder.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

/// x = x + attention(norm1(x)); x = x + mlp(norm2(x)): rotary grouped-query attention and a gated
/// MLP. The last product of each layer adds x as it stores its result.
class LlamaBlock final : public DecoderBlock {
 public:
  LlamaBlock(const DecoderSettings& c, const Scope& s, int64_t index, const RopeTable& rope)
      : norm1_(s / "norm1", Norm::Kind::rms, c.embed(), c.eps()),
        attn_(s / "attn", c.embed(), c.attention_options(rope, index)),
        norm2_(s / "norm2", Norm::Kind::rms, c.embed(), c.eps()),
        mlp_(s / "mlp", c.embed(), c.mlp(), c.std(), c.out_std()) {}

  Tensor operator()(Tensor x_TD, const ModelInput& input) const override {
    x_TD = attn_(norm1_(x_TD), input, x_TD);
    return mlp_(norm2_(x_TD), x_TD);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  GatedMlp mlp_;
};

class Llama final : public Decoder {
 public:
  Llama(const DecoderSettings& c, ModelContext& context)
      : Decoder(c, context,
                [&](const Scope& s, int64_t i, const RopeTable& rope) {
                  return std::make_unique<LlamaBlock>(c, s, i, rope);
                }),
        config_(c) {}

  double flops_per_token(int64_t seq_length) const override {
    double mlp =
        3 * static_cast<double>(config_.hidden_size) * static_cast<double>(config_.ffn_hidden_size);
    return 6 * (static_cast<double>(config_.layers) * (attention_products(seq_length) + mlp) +
                head_products());
  }

  std::vector<HfParameter> hf_parameters() const override {
    return hf_names([](int64_t, const std::string& ours, const std::string& theirs,
                       std::vector<HfParameter>& map) { add_hf_mlp(ours, theirs, map); });
  }

 private:
  DecoderSettings config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("llama", "Llama 2 and 3 family") {
  using namespace mtrain;
  registry.add<Model, Llama, DecoderSettings>("llama",
                                              "RMSNorm, rotary grouped-query attention, gated MLP");
}
