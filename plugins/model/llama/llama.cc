// Llama 2 and 3 and decoders that differ from them in settings: an embedding, blocks, a last norm
// and a head (mtrain/nn/decoder.h). A block is, by default (mtrain/nn/transformer_block.cc shows
// the variants),
//   x = x + attention(norm1(x));  x = x + mlp(norm2(x))
// with rotary grouped-query attention and a gated MLP. T tokens (batch folded in), D embed.
#include <memory>

#include "mtrain/nn/transformer_block.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

class Llama final : public Decoder {
 public:
  Llama(const DecoderSettings& c, ModelContext& context)
      : Decoder(c, context,
                [&](const Scope& s, int64_t i, const RopeTable& rope) {
                  return std::make_unique<TransformerBlock>(c, s, i, rope);
                }),
        config_(c) {}

  double flops_per_token(int64_t seq_length) const override {
    double mlp = mlp_products(config_.ffn_hidden_size), products = head_products();
    for (int64_t i = 0; i < config_.layers; ++i)
      products += attention_products(seq_length, i) + mlp;
    products += mtp_products(attention_products(seq_length, config_.layers - 1) + mlp);
    return 6 * products;
  }

 private:
  DecoderSettings config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("llama", "dense decoders with rotary positions, such as Llama, Mistral and Qwen") {
  using namespace mtrain;
  registry.add<Model, Llama, DecoderSettings>(
      "llama",
      "dense decoders with rotary positions: Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX and others "
      "(see `mtrain families`)");
}
