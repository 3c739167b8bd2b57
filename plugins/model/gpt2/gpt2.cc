// GPT-2 and GPT-3: learned positions, LayerNorm, attention and MLP with biases, tied embeddings.
// T tokens (batch folded in), D embed, H heads, E head dim, F mlp, V vocab.
#include <cmath>
#include <memory>

#include "mtrain/autograd/noise_ops.h"
#include "mtrain/base/rng.h"
#include "mtrain/config/fields.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/block_settings.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct Gpt2Config {
  int64_t layers = 12, hidden_size = 768, heads = 12, kv_heads = 0, ffn_hidden_size = 0,
          max_positions = 0, position_offset = 0, labels = 0;
  double norm_eps = 1e-5, init_std = 0.02, dropout = 0, embedding_noise = 0;
  bool tie_embeddings = true;
  std::string activation = "gelu_new", labels_of = "sequence";

  void bind(Fields& f);
  Dim embed() const { return {"embed", hidden_size}; }
  Dim mlp() const { return {"mlp", ffn_hidden_size > 0 ? ffn_hidden_size : 4 * hidden_size}; }
  HeadLayout head_layout() const { return layout_of_heads(hidden_size, heads, kv_heads); }
  MlpOptions mlp_options() const {
    return {.init_std = std(),
            .out_init_std = out_std(),
            .gated = false,
            .bias = true,
            .activation = activation == "relu"   ? Activation::relu
                          : activation == "gelu" ? Activation::gelu_erf
                                                 : Activation::gelu_tanh};
  }
  float std() const { return static_cast<float>(init_std); }
  // Projections into the residual stream start smaller, so that its variance does not grow with
  // depth (GPT-2, §2.3).
  float out_std() const {
    return static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers)));
  }
};

/// x = x + attention(norm1(x)); x = x + mlp(norm2(x)). The last product of each layer adds x as it
/// stores its result, except with dropout, which comes before the sum.
struct Block {
  Block(const Gpt2Config& c, const Scope& s)
      : norm1(s / "norm1", Norm::Kind::layer, c.embed(), static_cast<float>(c.norm_eps)),
        attn(s / "attn", c.embed(),
             {.layout = c.head_layout(),
              .bias = true,
              .init_std = c.std(),
              .out_init_std = c.out_std()}),
        norm2(s / "norm2", Norm::Kind::layer, c.embed(), static_cast<float>(c.norm_eps)),
        mlp(s / "mlp", c.embed(), c.mlp(), c.mlp_options()),
        drop(static_cast<float>(c.dropout)),
        key1(name_key((s / "drop1").path())),
        key2(name_key((s / "drop2").path())) {}

  Tensor operator()(Tensor x_TD, const ModelInput& input) const {
    if (drop > 0) {
      x_TD = add(x_TD, dropout(attn(norm1(x_TD), input), drop, key1));
      return add(x_TD, dropout(mlp(norm2(x_TD)), drop, key2));
    }
    x_TD = attn(norm1(x_TD), input, x_TD);
    return mlp(norm2(x_TD), x_TD);
  }
  Norm norm1;
  Attention attn;
  Norm norm2;
  Mlp mlp;
  float drop;
  uint64_t key1, key2;
};

class Gpt2 final : public Model {
 public:
  Gpt2(const Gpt2Config& c, ModelContext& context) : config_(c), context_(context) {
    const Scope& s = context.scope;
    check();
    Dim vocab{"vocab", context.vocab_size};
    if (context.stage.first) {
      embed_.emplace(s / "embed", vocab, c.embed(), c.std());
      const Dim rows{"positions", positions() + c.position_offset};
      positions_.emplace(s / "positions", rows, c.embed(), c.std(), c.position_offset);
    }
    Parameter* table = c.tie_embeddings && c.labels == 0
                           ? tied_table(s / "embed", context.stage, vocab, c.embed(), c.std())
                           : nullptr;
    auto [begin, end] = context.stage.layers(c.layers);
    for (int64_t i = begin; i < end; ++i)
      blocks_.push_back(std::make_unique<Block>(c, s / "layers" / i));
    if (!context.stage.last) return;
    norm_.emplace(s / "norm", Norm::Kind::layer, c.embed(), static_cast<float>(c.norm_eps));
    if (c.labels > 0) {
      score_.emplace(s, c.embed(), c.labels, c.labels_of, c.std());
      return;
    }
    head_.emplace(s / "head", vocab, c.embed(), context.valid_vocab, table, c.std());
  }

  Tensor forward(const ModelInput& input, Tensor x_TD) override {
    if (embed_) {
      x_TD = add_noise((*embed_)(input.tokens_T),
                       embedding_noise_size(config_.embedding_noise, context_.max_positions,
                                            config_.hidden_size),
                       name_key("embed.noise"));
      x_TD = add(x_TD, (*positions_)(input.positions_T));
      x_TD = dropout(x_TD, static_cast<float>(config_.dropout), name_key("embed.drop"));
    }
    int64_t first = context_.stage.layers(config_.layers).first;
    auto block = [this, first, input](int64_t i, const Tensor& x) {
      return (*blocks_[static_cast<size_t>(i - first)])(x, input);
    };
    x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
    if (score_) return (*score_)((*norm_)(x_TD));
    return head_ ? (*head_)((*norm_)(x_TD), input) : x_TD;
  }

  bool continues_texts() const override { return true; }

  double flops_per_token(int64_t seq_length) const override {
    auto d = static_cast<double>(config_.hidden_size), f = static_cast<double>(config_.mlp().size);
    const HeadLayout heads = config_.head_layout();
    double shared = static_cast<double>(heads.groups) / static_cast<double>(heads.heads);
    double block = (2 + 2 * shared) * d * d + 2 * d * f;
    double attention =
        d * static_cast<double>(seq_length);  // scores and values, half of them masked
    return 6 * (static_cast<double>(config_.layers) * (block + attention) +
                d * static_cast<double>(config_.labels > 0 ? config_.labels : context_.vocab_size));
  }

 private:
  int64_t positions() const {
    return config_.max_positions > 0 ? config_.max_positions : context_.max_positions;
  }
  void check() const {
    MT_USER_CHECK(positions() >= context_.max_positions, ErrorClass::config,
                  cat("model.max_positions (", positions(), ") is below model.seq_length (",
                      context_.max_positions, ")"),
                  "shorten model.seq_length or train a longer position table");
  }

  Gpt2Config config_;
  ModelContext context_;
  std::optional<Embedding> embed_, positions_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<Norm> norm_;
  std::optional<LmHead> head_;
  std::optional<ScoreHead> score_;
};

void Gpt2Config::bind(Fields& f) {
  using enum ResumeClass;
  f("layers", layers, "number of decoder blocks")
      .min(1)
      .max(kMostLayers)
      .resume(impossible)
      .fact(Fact::layers)
      .renamed_from({"num_layers", "n_layer", "num_hidden_layers"});
  f("hidden_size", hidden_size, "width of the residual stream")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::hidden_size)
      .renamed_from({"n_embd"});
  f("heads", heads, "number of attention heads")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::heads)
      .renamed_from({"num_attention_heads", "n_head"});
  f("kv_heads", kv_heads, "number of key/value heads; 0: heads")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::kv_heads)
      .renamed_from({"num_query_groups", "num_key_value_heads"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP; 0: 4 * hidden_size")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::ffn_hidden_size)
      .renamed_from({"n_inner"});
  f("max_positions", max_positions, "positions of the position embedding; 0: seq_length")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"n_positions", "max_position_embeddings"});
  f("position_offset", position_offset,
    "rows of the position embedding before that of the first position, which are not used (OPT: 2)")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible);
  f("norm_eps", norm_eps, "epsilon of LayerNorm, added to the variance")
      .exclusive_min(0)
      .renamed_from({"layer_norm_epsilon", "layernorm_epsilon"});
  f("init_std", init_std, "standard deviation of weight initialization")
      .min(0)
      .resume(start)
      .renamed_from({"init_method_std", "initializer_range"});
  f("dropout", dropout, "dropout probability of embeddings and block outputs")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"hidden_dropout", "resid_pdrop"});
  bind_embedding_noise(f, embedding_noise);
  f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
  bind_labels(f, labels, labels_of);
  f("activation", activation, "activation of the MLP; gelu_new: the tanh approximation")
      .one_of({"gelu_new", "gelu", "relu"})
      .renamed_from({"activation_function"});
}

}  // namespace
}  // namespace mtrain

MT_PLUGIN("gpt2", "decoders with learned positions: GPT-2, GPT-3, OPT, GPTBigCode") {
  using namespace mtrain;
  registry.add<Model, Gpt2, Gpt2Config>("gpt2", "learned positions, LayerNorm, GELU, biases");
}
