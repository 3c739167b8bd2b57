// Decoders with experts — Mixtral, Qwen3-MoE and their kin: pre-norm blocks of RMSNorm, rotary grouped-query attention, and a
// gated MLP or a mixture of such.
// T tokens (batch folded in), D embed, H heads, G key/value groups, E experts, F mlp, V vocab.
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/nn/moe_step.h"
#include "mtrain/plugin/plugin.h"
#include "settings.h"

namespace mtrain {
namespace {

struct MoeBlock {
  MoeBlock(const MoeDecoderSettings& c, const Scope& s, const RopeTable& table, bool sparse)
      : norm1(s / "norm1", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps)),
        attn(s / "attn", c.embed(),
             {.layout = c.head_layout(), .init_std = c.std(), .out_init_std = c.out_std(), .rope = &table}),
        norm2(s / "norm2", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps)) {
    if (!sparse) {
      mlp.emplace(s / "mlp", c.embed(), Dim{"mlp", c.ffn_hidden_size}, c.std(), c.out_std());
      return;
    }
    MoeOptions options = c.moe.options(c.ffn_hidden_size);
    options.init_std = c.std();
    options.out_init_std = c.out_std();
    moe.emplace(s / "mlp", c.embed(), options);
  }

  Tensor operator()(Tensor x_TD, const ModelInput& input) const {
    x_TD = attn(norm1(x_TD), input, x_TD);
    return moe ? (*moe)(norm2(x_TD), input, x_TD) : (*mlp)(norm2(x_TD), x_TD);
  }
  Norm norm1;
  Attention attn;
  Norm norm2;
  std::optional<GatedMlp> mlp;
  std::optional<Moe> moe;
};

class MoeDecoder final : public Model {
 public:
  MoeDecoder(const MoeDecoderSettings& c, ModelContext& context) : config_(c), context_(context) {
    const Scope& s = context.scope;
    check();
    rope_ = make_rope_table(s.run(), c.rope, context.max_positions, c.head_layout().head_dim);
    Dim vocab{"vocab", context.vocab_size};
    if (context.stage.first) embed_.emplace(s / "embed", vocab, c.embed(), c.std());
    Parameter* table = c.tie_embeddings ? tied_table(s / "embed", context.stage, vocab, c.embed(), c.std()) : nullptr;
    auto [begin, end] = context.stage.layers(c.layers);
    for (int64_t i = begin; i < end; ++i)
      blocks_.push_back(std::make_unique<MoeBlock>(c, s / "layers" / i, rope_, c.sparse(i)));
    if (!context.stage.last) return;
    norm_.emplace(s / "norm", Norm::Kind::rms, c.embed(), static_cast<float>(c.norm_eps));
    head_.emplace(s / "head", vocab, c.embed(), context.valid_vocab, table, c.std());
  }

  Tensor forward(const ModelInput& input, Tensor x_TD) override {
    if (embed_) x_TD = (*embed_)(input.tokens_T);
    int64_t first = context_.stage.layers(config_.layers).first;
    auto block = [this, first, input](int64_t i, const Tensor& x) { return (*blocks_[static_cast<size_t>(i - first)])(x, input); };
    x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
    return head_ ? (*head_)((*norm_)(x_TD), input) : x_TD;
  }

  std::vector<StepFigure> end_step(bool updated) override {
    std::vector<Moe*> mixtures;
    for (auto& block : blocks_)
      if (block->moe) mixtures.push_back(&*block->moe);
    return end_moe_step(mixtures, context_.scope.parallel(), updated);
  }

  double flops_per_token(int64_t seq_length) const override {
    HeadLayout h = config_.head_layout();
    auto d = static_cast<double>(config_.hidden_size), heads = static_cast<double>(h.heads * h.head_dim);
    double attention = d * static_cast<double>(h.width()) + heads * d + heads * static_cast<double>(seq_length);
    double products = d * static_cast<double>(context_.vocab_size);
    for (int64_t i = 0; i < config_.layers; ++i) {
      const MoeSettings& moe = config_.moe;
      int64_t ffn = moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config_.ffn_hidden_size;
      int64_t width = config_.sparse(i) ? moe.top_k * ffn + moe.shared_ffn_hidden_size : config_.ffn_hidden_size;
      products += attention + 3 * d * static_cast<double>(width);
      if (config_.sparse(i)) products += d * static_cast<double>(moe.experts);
    }
    return 6 * products;
  }

  // Mixtral's names: Qwen3-MoE and DeepSeek-V3 have norms and attention besides that are not built.
  std::vector<HfParameter> hf_parameters() const override {
    std::vector<HfParameter> map = {{"embed.weight", {{"model.embed_tokens.weight"}}}, {"norm.weight", {{"model.norm.weight"}}}};
    if (!config_.tie_embeddings) map.push_back({"head.weight", {{"lm_head.weight"}}});
    for (int64_t i = 0; i < config_.layers; ++i) {
      std::string ours = cat("layers.", i, "."), theirs = cat("model.layers.", i, "."), attn = theirs + "self_attn.";
      map.push_back({ours + "norm1.weight", {{theirs + "input_layernorm.weight"}}});
      map.push_back({ours + "attn.qkv.weight", hf_qkv_pieces(config_.head_layout(), attn + "q_proj.weight",
                                                             attn + "k_proj.weight", attn + "v_proj.weight")});
      map.push_back({ours + "attn.out.weight", {{attn + "o_proj.weight"}}});
      map.push_back({ours + "norm2.weight", {{theirs + "post_attention_layernorm.weight"}}});
      if (config_.sparse(i)) add_hf_experts(ours + "mlp.", theirs + "block_sparse_moe.", map);
      for (const char* part : {"gate", "up", "down"})
        if (!config_.sparse(i)) map.push_back({cat(ours, "mlp.", part, ".weight"), {{cat(theirs, "mlp.", part, "_proj.weight")}}});
    }
    return map;
  }

 private:
  void add_hf_experts(const std::string& ours, const std::string& theirs, std::vector<HfParameter>& map) const {
    int64_t ffn = config_.moe.options(config_.ffn_hidden_size).ffn;
    map.push_back({ours + "router.weight", {{theirs + "gate.weight"}}});
    for (auto [part, number] : {std::pair{"gate", 1}, {"up", 3}, {"down", 2}}) {
      HfParameter parameter{cat(ours, "experts.", part, ".weight"), {}};
      int64_t rows = number == 2 ? config_.hidden_size : ffn;
      for (int64_t e = 0; e < config_.moe.experts; ++e)
        parameter.pieces.push_back({cat(theirs, "experts.", e, ".w", number, ".weight"), 0, e * rows, rows});
      map.push_back(std::move(parameter));
    }
  }

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

  MoeDecoderSettings config_;
  ModelContext context_;
  RopeTable rope_;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<MoeBlock>> blocks_;
  std::optional<Norm> norm_;
  std::optional<LmHead> head_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("moe", "decoders with experts: Mixtral, Qwen3-MoE") {
  using namespace mtrain;
  registry.add<Model, MoeDecoder, MoeDecoderSettings>("moe", "decoder with experts: Mixtral, Qwen3-MoE, DeepSeek-V3");
}
