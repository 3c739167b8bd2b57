// Llama 2 and 3 and their kin: pre-norm blocks of RMSNorm, rotary grouped-query attention and a gated MLP.
// T tokens (batch folded in), D embed, H heads, G key/value groups, E head dim, F mlp, V vocab.
#include <cmath>
#include <memory>

#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/layers.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct LlamaConfig {
  int64_t layers = 32, hidden_size = 4096, heads = 32, kv_heads = 0, ffn_hidden_size = 11008, head_dim = 0;
  double norm_eps = 1e-5, init_std = 0.02;
  bool tie_embeddings = false;
  RopeConfig rope;
  AttentionVariants attention;

  void bind(Fields& f) {
    using enum ResumeClass;
    f("layers", layers, "decoder blocks").min(1).resume(impossible).renamed_from({"num_layers", "num_hidden_layers"});
    f("hidden_size", hidden_size, "width of the residual stream").min(1).resume(impossible);
    f("heads", heads, "query heads").min(1).resume(impossible).renamed_from({"num_attention_heads"});
    f("kv_heads", kv_heads, "key/value heads; 0: as many as query heads")
        .min(0)
        .resume(impossible)
        .renamed_from({"num_query_groups", "num_key_value_heads"});
    f("ffn_hidden_size", ffn_hidden_size, "width of the MLP").min(1).resume(impossible).renamed_from({"intermediate_size"});
    f("head_dim", head_dim, "width of one head; 0: hidden_size / heads").min(0).resume(impossible).renamed_from({"kv_channels"});
    f("norm_eps", norm_eps, "added to the mean square").exclusive_min(0).renamed_from({"rms_norm_eps", "layernorm_epsilon"});
    f("init_std", init_std, "standard deviation of start weights").min(0).renamed_from({"init_method_std", "initializer_range"});
    f("tie_embeddings", tie_embeddings, "the head uses the embedding's matrix").resume(impossible).renamed_from({"tie_word_embeddings"});
    f.section("rope", rope);
    f.section("attention", attention);
  }

  HeadLayout head_layout() const {
    return {heads, kv_heads > 0 ? kv_heads : heads, head_dim > 0 ? head_dim : hidden_size / heads};
  }
  Dim embed() const { return {"embed", hidden_size}; }
  // Projections into the residual stream start smaller, so that its variance does not grow with depth (GPT-2, §2.3).
  float out_std() const { return static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers))); }
};

struct Block {
  Block(const LlamaConfig& c, const Scope& s, const RopeTable& table)
      : norm1(s / "norm1", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps)),
        attn(s / "attn", c.embed(),
             {.layout = c.head_layout(), .init_std = static_cast<float>(c.init_std), .out_init_std = c.out_std(), .rope = &table}),
        norm2(s / "norm2", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps)),
        mlp(s / "mlp", c.embed(), {"mlp", c.ffn_hidden_size}, static_cast<float>(c.init_std), c.out_std()) {}

  Tensor operator()(Tensor x_TD, const ModelInput& input) const {
    x_TD = attn(norm1(x_TD), input, x_TD);
    return mlp(norm2(x_TD), x_TD);
  }
  Norm norm1;
  Attention attn;
  Norm norm2;
  GatedMlp mlp;
};

class Llama final : public Model {
 public:
  Llama(const LlamaConfig& c, ModelContext& context) : config_(c), context_(context) {
    const Scope& s = context.scope;
    check();
    rope_ = make_rope_table(s.run(), c.rope, context.max_positions, c.head_layout().head_dim);
    Dim vocab{"vocab", context.vocab_size};
    auto std = static_cast<float>(c.init_std);
    if (context.stage.first) embed_.emplace(s / "embed", vocab, c.embed(), std);
    Parameter* table = c.tie_embeddings ? tied_table(s / "embed", context.stage, vocab, c.embed(), std) : nullptr;
    auto [begin, end] = context.stage.layers(c.layers);
    for (int64_t i = begin; i < end; ++i) blocks_.push_back(std::make_unique<Block>(c, s / "layers" / i, rope_));
    if (!context.stage.last) return;
    norm_.emplace(s / "norm", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps));
    head_.emplace(s / "head", vocab, c.embed(), context.valid_vocab, table, std);
  }

  Tensor forward(const ModelInput& input, Tensor x_TD) override {
    if (embed_) x_TD = (*embed_)(input.tokens_T);
    int64_t first = context_.stage.layers(config_.layers).first;
    auto block = [this, first, input](int64_t i, const Tensor& x) { return (*blocks_[static_cast<size_t>(i - first)])(x, input); };
    x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
    return head_ ? (*head_)((*norm_)(x_TD), input) : x_TD;
  }

  double flops_per_token(int64_t seq_length) const override {
    HeadLayout h = config_.head_layout();
    auto d = static_cast<double>(config_.hidden_size), heads = static_cast<double>(h.heads * h.head_dim);
    double block = d * static_cast<double>(h.width()) + heads * d + 3 * d * static_cast<double>(config_.ffn_hidden_size);
    double attention = heads * static_cast<double>(seq_length);  // scores and values, half of them masked
    return 6 * (static_cast<double>(config_.layers) * (block + attention) + d * static_cast<double>(context_.vocab_size));
  }

  std::vector<HfParameter> hf_parameters() const override {
    std::vector<HfParameter> map = {{"embed.weight", {{"model.embed_tokens.weight"}}}, {"norm.weight", {{"model.norm.weight"}}}};
    if (!config_.tie_embeddings) map.push_back({"head.weight", {{"lm_head.weight"}}});
    for (int64_t i = 0; i < config_.layers; ++i) {
      std::string ours = cat("layers.", i, "."), theirs = cat("model.layers.", i, ".");
      std::string attn = theirs + "self_attn.";
      map.push_back({ours + "norm1.weight", {{theirs + "input_layernorm.weight"}}});
      map.push_back({ours + "attn.qkv.weight", hf_qkv_pieces(config_.head_layout(), attn + "q_proj.weight",
                                                             attn + "k_proj.weight", attn + "v_proj.weight")});
      map.push_back({ours + "attn.out.weight", {{attn + "o_proj.weight"}}});
      map.push_back({ours + "norm2.weight", {{theirs + "post_attention_layernorm.weight"}}});
      for (const char* part : {"gate", "up", "down"})
        map.push_back({cat(ours, "mlp.", part, ".weight"), {{cat(theirs, "mlp.", part, "_proj.weight")}}});
    }
    return map;
  }

 private:
  void check() const {
    HeadLayout h = config_.head_layout();
    MT_USER_CHECK(h.heads % h.groups == 0, ErrorClass::config,
                  cat("model.heads (", h.heads, ") is not a multiple of model.kv_heads (", h.groups, ")"),
                  "each key/value head serves the same number of query heads");
    MT_USER_CHECK(config_.head_dim > 0 || config_.hidden_size % config_.heads == 0, ErrorClass::config,
                  cat("model.hidden_size (", config_.hidden_size, ") is not a multiple of model.heads (", config_.heads, ")"),
                  "set model.head_dim, or choose a number of heads that divides the width");
    MT_USER_CHECK(h.head_dim % 2 == 0, ErrorClass::config, cat("head dim ", h.head_dim, " is odd"),
                  "rotary positions turn pairs: choose an even head dim");
  }

  LlamaConfig config_;
  ModelContext context_;
  RopeTable rope_;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<Norm> norm_;
  std::optional<LmHead> head_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("llama", "Llama 2 and 3 family") {
  using namespace mtrain;
  registry.add<Model, Llama, LlamaConfig>("llama", "RMSNorm, rotary grouped-query attention, gated MLP");
}
