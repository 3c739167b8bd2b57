// A decoder in the manner of Gemma (Gemma Team 2024, arXiv:2403.08295): embeddings scaled by the
// root of the width, RMS norms whose scale is 1 + w, rotary grouped-query attention, an MLP gated
// by GELU, and a head tied to the embedding. The file reads from settings to registration.
// Legend: T tokens (batch folded in), D width, F MLP width.
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/rope_table.h"
#include "mtrain/plugin/plugin.h"

namespace {

using namespace mtrain;

/// The names are this model's own. mtrain finds the sizes by the facts.
struct GemmaSettings {
  int64_t depth = 18, width = 2048, query_heads = 8, key_heads = 1, head_width = 256,
          mlp_width = 16384;
  double norm_eps = 1e-6, init_std = 0.02, rope_theta = 10000;

  void bind(Fields& f) {
    using enum ResumeClass;
    auto size = [&f](const char* name, int64_t& value, const char* meaning, Fact fact) {
      f(name, value, meaning).min(1).max(1 << 24).resume(impossible).fact(fact);
    };
    size("depth", depth, "decoder blocks", Fact::layers);
    size("width", width, "width of the residual stream", Fact::hidden_size);
    size("query_heads", query_heads, "query heads", Fact::heads);
    size("key_heads", key_heads, "heads of keys and values", Fact::kv_heads);
    size("head_width", head_width, "width of one head", Fact::head_dim);
    size("mlp_width", mlp_width, "width of the MLP", Fact::ffn_hidden_size);
    f("norm_eps", norm_eps, "added to the mean square").exclusive_min(0);
    f("init_std", init_std, "standard deviation of start weights").min(0).resume(start);
    f("rope_theta", rope_theta, "base of the rotary frequencies").exclusive_min(1);
  }

  Dim embed() const { return {"embed", width}; }
  Dim mlp() const { return {"mlp", mlp_width}; }
  HeadLayout heads() const { return {query_heads, key_heads, head_width}; }
  float std() const { return static_cast<float>(init_std); }
};

/// (1 + w) x / rms(x), with w = 0 at the start. The addition costs D elements, not T x D.
class OffsetNorm {
 public:
  OffsetNorm(const GemmaSettings& c, const Scope& s)
      : weight_(s.param("weight", {c.embed()}, Init::zeros(), false, ParamRole::norm)),
        ones_(s.context().empty({c.width}, s.dtype())),
        eps_(static_cast<float>(c.norm_eps)) {
    s.context().fill(ones_, 1);
  }

  Tensor operator()(const Tensor& x_TD) const {
    Tensor w_D = weight_.use(), ones_D = ones_;
    ones_D.set_placement(w_D.placement());  // the same constant on every rank
    return rms_norm(x_TD, add(w_D, ones_D), eps_);
  }

 private:
  Parameter& weight_;
  Tensor ones_;
  float eps_;
};

/// down(gelu(gate(x)) * up(x)).
class GeluMlp {
 public:
  GeluMlp(const GemmaSettings& c, const Scope& s)
      : region_(s),
        plan_(s.blocks()),
        gate_(s / "gate", c.mlp(), c.embed(), {.init_std = c.std()}),
        up_(s / "up", c.mlp(), c.embed(), {.init_std = c.std()}),
        down_(s / "down", c.embed(), c.mlp(), {.init_std = c.std()}) {}

  Tensor operator()(const Tensor& normed_TD, const Tensor& residual_TD) const {
    auto mlp = [this](const Tensor& x_TD, const Tensor& added_TD) {
      auto [gate_TF, up_TF] = region_.project(x_TD, {gate_, up_});
      Tensor open_TF = gelu(gate_TF, GeluKind::tanh);
      // Backward computes gelu(gate) again, so the two ops keep what one fused op would keep.
      Tensor h_TF = discard_until_backward(mul(open_TF, up_TF), open_TF);
      return down_.leave(region_, h_TF, added_TD);
    };
    return plan_.run(RecomputePart::mlp, mlp, normed_TD, residual_TD);
  }

 private:
  Region region_;
  const BlockPlan& plan_;
  Linear gate_, up_, down_;
};

/// x = x + attention(norm(x)); x = x + mlp(norm(x)). The last product of each half adds x as it
/// stores its result.
struct Block {
  Block(const GemmaSettings& c, const Scope& s, const RopeTable& rope)
      : norm1(c, s / "norm1"),
        attn(s / "attn", c.embed(),
             {.layout = c.heads(), .init_std = c.std(), .out_init_std = c.std(), .rope = &rope}),
        norm2(c, s / "norm2"),
        mlp(c, s / "mlp") {}

  Tensor operator()(Tensor x_TD, const ModelInput& input) const {
    x_TD = attn(norm1(x_TD), input, x_TD);
    return mlp(norm2(x_TD), x_TD);
  }

  OffsetNorm norm1;
  Attention attn;
  OffsetNorm norm2;
  GeluMlp mlp;
};

class GemmaLike final : public Model {
 public:
  GemmaLike(const GemmaSettings& c, ModelContext& context)
      : config_(c), scope_(context.scope), stage_(context.stage), vocab_(context.vocab_size) {
    check(c);
    rope_ = make_rope_table(scope_.context(), RopeConfig{.theta = c.rope_theta},
                            context.max_positions, c.head_width);
    const Dim vocab{"vocab", vocab_};
    if (stage_.first) embed_.emplace(scope_ / "embed", vocab, c.embed(), c.std());
    Parameter* table = tied_table(scope_ / "embed", stage_, vocab, c.embed(), c.std());
    auto [begin, end] = stage_.layers(c.depth);
    for (int64_t i = begin; i < end; ++i)
      blocks_.push_back(std::make_unique<Block>(c, scope_ / "blocks" / i, rope_));
    if (!stage_.last) return;
    norm_.emplace(c, scope_ / "norm");
    head_.emplace(scope_ / "head", vocab, c.embed(), context.valid_vocab, table, c.std());
  }

  Tensor forward(const ModelInput& input, Tensor x_TD) override {
    if (embed_)
      x_TD = scale((*embed_)(input.tokens_T), std::sqrt(static_cast<float>(config_.width)));
    const int64_t first = stage_.layers(config_.depth).first;
    auto block = [this, first, input](int64_t i, const Tensor& x) {
      return (*blocks_[static_cast<size_t>(i - first)])(x, input);
    };
    x_TD = run_blocks(scope_.blocks(), first, first + std::ssize(blocks_), block, x_TD);
    return head_ ? (*head_)((*norm_)(x_TD), input) : x_TD;
  }

  double flops_per_token(int64_t seq_length) const override {
    auto d = static_cast<double>(config_.width);
    auto heads = static_cast<double>(config_.query_heads * config_.head_width);
    const double attention = d * static_cast<double>(config_.heads().width()) + heads * d +
                             heads * static_cast<double>(seq_length),  // scores: half are masked
        mlp = 3 * d * static_cast<double>(config_.mlp_width);
    return 6 * (static_cast<double>(config_.depth) * (attention + mlp) +
                d * static_cast<double>(vocab_));
  }

 private:
  static void check(const GemmaSettings& c) {
    MT_USER_CHECK(c.query_heads % c.key_heads == 0, ErrorClass::config,
                  cat("model.query_heads (", c.query_heads,
                      ") is not a multiple of model.key_heads (", c.key_heads, ")"),
                  "choose a divisor of model.query_heads for model.key_heads");
    MT_USER_CHECK(c.head_width % 2 == 0, ErrorClass::config,
                  cat("model.head_width (", c.head_width, ") is odd"),
                  "rotary positions turn pairs: choose an even model.head_width");
  }

  GemmaSettings config_;
  Scope scope_;
  StageRange stage_;
  int64_t vocab_;
  RopeTable rope_;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<OffsetNorm> norm_;
  std::optional<LmHead> head_;
};

}  // namespace

MT_PLUGIN("gemma_like", "a decoder in the manner of Gemma") {
  registry.add<Model, GemmaLike, GemmaSettings>(
      "gemma_like", "scaled embeddings, (1 + w) norms, grouped-query attention, GELU-gated MLP");
}
