// Llama 2 and 3 and their kin: decoder blocks with a gated MLP.
#include <memory>

#include "mtrain/nn/decoder.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

class LlamaBlock final : public DecoderBlock {
 public:
  LlamaBlock(const DecoderSettings& c, const Scope& s, const RopeTable& rope)
      : DecoderBlock(c, s, rope),
        mlp_(s / "mlp", c.embed(), {"mlp", c.ffn_hidden_size}, c.std(), c.out_std()) {}

 private:
  Tensor feed_forward(const Tensor& normed_TD, const ModelInput& /*input*/,
                      const Tensor& residual_TD) const override {
    return mlp_(normed_TD, residual_TD);
  }
  GatedMlp mlp_;
};

class Llama final : public Decoder {
 public:
  Llama(const DecoderSettings& c, ModelContext& context)
      : Decoder(c, context,
                [&](const Scope& s, int64_t, const RopeTable& rope) {
                  return std::make_unique<LlamaBlock>(c, s, rope);
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
