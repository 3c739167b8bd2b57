// BERT (Devlin et al. 2018, arXiv:1810.04805): an encoder with learned positions, LayerNorm after
// each residual sum, and a head that predicts masked tokens. All tokens belong to segment 0,
// because there is no sentence-pair task; the other rows of the segment table are kept so that the
// weights can be used elsewhere. T tokens (batch folded in), D embed, H heads, E head dim, F mlp, V
// vocab.
#include <memory>

#include "mtrain/base/rng.h"
#include "mtrain/config/fields.h"
#include "mtrain/data/dataset.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct BertConfig {
  int64_t layers = 24, hidden_size = 1024, heads = 16, ffn_hidden_size = 4096, max_positions = 0,
          position_offset = 0, segments = 2, labels = 0;
  double norm_eps = 1e-12, init_std = 0.02, dropout = 0.1;
  bool tie_embeddings = true;
  std::string activation = "gelu", labels_of = "token";

  void bind(Fields& f) {
    using enum ResumeClass;
    f.objective(Dataset::kMaskedToken);
    f.reuses_norm_outputs();
    f("layers", layers, "number of encoder blocks")
        .min(1)
        .max(kMostLayers)
        .resume(impossible)
        .fact(Fact::layers)
        .renamed_from({"num_layers", "num_hidden_layers"});
    f("hidden_size", hidden_size, "width of the residual stream")
        .min(1)
        .max(kLargestDimension)
        .resume(impossible)
        .fact(Fact::hidden_size);
    f("heads", heads, "number of attention heads")
        .min(1)
        .max(kLargestDimension)
        .resume(impossible)
        .fact(Fact::heads)
        .renamed_from({"num_attention_heads"});
    f("ffn_hidden_size", ffn_hidden_size, "width of the MLP")
        .min(1)
        .max(kLargestDimension)
        .resume(impossible)
        .fact(Fact::ffn_hidden_size)
        .renamed_from({"intermediate_size"});
    f("max_positions", max_positions, "positions of the position embedding; 0: seq_length")
        .min(0)
        .max(kLargestDimension)
        .resume(impossible)
        .renamed_from({"max_position_embeddings"});
    f("position_offset", position_offset,
      "rows of the position embedding before that of the first position, which are not used "
      "(RoBERTa: 2)")
        .min(0)
        .max(kLargestDimension)
        .resume(impossible);
    f("segments", segments,
      "rows of the segment embedding; all tokens use the first row; 0: no segment embedding")
        .min(0)
        .max(kLargestDimension)
        .resume(impossible)
        .renamed_from({"type_vocab_size"});
    f("norm_eps", norm_eps, "epsilon of LayerNorm, added to the variance")
        .exclusive_min(0)
        .renamed_from({"layer_norm_eps", "layernorm_epsilon"});
    f("init_std", init_std, "standard deviation of weight initialization")
        .min(0)
        .resume(start)
        .renamed_from({"init_method_std", "initializer_range"});
    f("dropout", dropout, "dropout probability of embeddings and block outputs")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"hidden_dropout", "hidden_dropout_prob"});
    f("activation", activation,
      "activation of the MLP and the head; gelu_new: the tanh approximation")
        .one_of({"gelu", "gelu_new"})
        .renamed_from({"hidden_act"});
    f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
        .resume(impossible)
        .renamed_from({"tie_word_embeddings"});
    bind_labels(f, labels, labels_of, {"token"});
  }
  Dim embed() const { return {"embed", hidden_size}; }
  Dim mlp() const { return {"mlp", ffn_hidden_size}; }
  HeadLayout head_layout() const { return layout_of_heads(hidden_size, heads); }
  GeluKind gelu() const { return activation == "gelu" ? GeluKind::erf : GeluKind::tanh; }
  float std() const { return static_cast<float>(init_std); }
  float eps() const { return static_cast<float>(norm_eps); }
  float drop() const { return static_cast<float>(dropout); }
};

struct Block {
  Block(const BertConfig& c, const Scope& s)
      : attn(s / "attn", c.embed(),
             {.layout = c.head_layout(),
              .bias = true,
              .causal = false,
              .init_std = c.std(),
              .out_init_std = c.std()}),
        norm1(s / "norm1", Norm::Kind::layer, c.embed(), c.eps()),
        mlp(s / "mlp", c.embed(), c.mlp(), c.gelu(), {c.std(), true}, c.std()),
        norm2(s / "norm2", Norm::Kind::layer, c.embed(), c.eps()),
        drop(c.drop()),
        key1(name_key((s / "drop1").path())),
        key2(name_key((s / "drop2").path())) {}

  Tensor operator()(Tensor x_TD, const ModelInput& input) const {
    if (drop > 0) {  // dropout precedes the sum
      x_TD = norm1(add(x_TD, dropout(attn(x_TD, input), drop, key1)));
      return norm2(add(x_TD, dropout(mlp(x_TD), drop, key2)));
    }
    x_TD = norm1(attn(x_TD, input, x_TD));
    return norm2(mlp(x_TD, x_TD));
  }
  Attention attn;
  Norm norm1;
  Mlp mlp;
  Norm norm2;
  float drop;
  uint64_t key1, key2;
};

/// The normalized sum of token, position and segment embeddings.
struct Input {
  Input(const BertConfig& c, const Scope& s, const Dim& vocab)
      : tokens(s / "embed", vocab, c.embed(), c.std()),
        positions(s / "positions", Dim{"positions", c.max_positions + c.position_offset}, c.embed(),
                  c.std(), c.position_offset),
        segments(c.segments > 0
                     ? std::optional<Embedding>(std::in_place, s / "segments",
                                                Dim{"segments", c.segments}, c.embed(), c.std())
                     : std::nullopt),
        norm(s / "embed_norm", Norm::Kind::layer, c.embed(), c.eps()),
        drop(c.drop()) {}
  Tensor operator()(const ModelInput& input) const {
    Tensor sum = tokens(input.tokens_T);
    if (segments) {
      Tensor first = input.tokens_T.context().zeros(input.tokens_T.shape(), DType::i32);
      sum = add(sum, (*segments)(first));
    }
    return dropout(norm(add(sum, positions(input.positions_T))), drop, name_key("embed.drop"));
  }
  Embedding tokens, positions;
  std::optional<Embedding> segments;
  Norm norm;
  float drop;
};

/// Transforms the residual stream into the vector that is multiplied with the token embeddings.
struct Head {
  Head(const BertConfig& c, const Scope& s, const Dim& vocab, int64_t valid_vocab, Parameter* table)
      : dense(s / "dense", c.embed(), c.embed(), {c.std(), true}),
        gelu_kind(c.gelu()),
        norm(s / "norm", Norm::Kind::layer, c.embed(), c.eps()),
        logits(s, vocab, c.embed(), valid_vocab, table, c.std(), true) {}
  Tensor operator()(const Tensor& x_TD, const ModelInput& input) const {
    return logits(norm(gelu(dense(x_TD), gelu_kind)), input);
  }
  Linear dense;
  GeluKind gelu_kind;
  Norm norm;
  LmHead logits;
};

class Bert final : public Model {
 public:
  Bert(const BertConfig& given, ModelContext& context) : config_(given), context_(context) {
    if (config_.max_positions == 0) config_.max_positions = context.max_positions;
    const BertConfig& c = config_;
    const Scope& s = context.scope;
    check();
    Dim vocab{"vocab", context.vocab_size};
    if (context.stage.first) input_.emplace(c, s, vocab);
    Parameter* table = c.tie_embeddings && c.labels == 0
                           ? tied_table(s / "embed", context.stage, vocab, c.embed(), c.std())
                           : nullptr;
    // In the same bucket as the table with which it is used, if that is on this rank, so that both
    // are gathered together.
    if (table && context.stage.first && !active_axis(s.parallel().embedding_group))
      (s / "head").param("bias", {vocab}, Init::zeros(), false, ParamRole::bias);
    auto [begin, end] = context.stage.layers(c.layers);
    for (int64_t i = begin; i < end; ++i)
      blocks_.push_back(std::make_unique<Block>(c, s / "layers" / i));
    if (context.stage.last && c.labels > 0)
      score_.emplace(s, c.embed(), c.labels, c.labels_of, c.std());
    else if (context.stage.last)
      head_.emplace(c, s / "head", vocab, context.valid_vocab, table);
  }

  Tensor forward(const ModelInput& input, Tensor x_TD) override {
    if (input_) x_TD = (*input_)(input);
    int64_t first = context_.stage.layers(config_.layers).first;
    auto block = [this, first, input](int64_t i, const Tensor& x) {
      return (*blocks_[static_cast<size_t>(i - first)])(x, input);
    };
    x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
    if (score_) return (*score_)(dropout(x_TD, config_.drop(), name_key("score.drop")));
    return head_ ? (*head_)(x_TD, input) : x_TD;
  }

  double flops_per_token(int64_t seq_length) const override {
    auto d = static_cast<double>(config_.hidden_size),
         f = static_cast<double>(config_.ffn_hidden_size);
    double block = 4 * d * d + 2 * d * f;
    double attention = 2 * d * static_cast<double>(seq_length);  // scores and values of every pair
    double head = config_.labels > 0 ? d * static_cast<double>(config_.labels)
                                     : d * d + d * static_cast<double>(context_.vocab_size);
    return 6 * (static_cast<double>(config_.layers) * (block + attention) + head);
  }

 private:
  void check() const {
    MT_USER_CHECK(config_.max_positions >= context_.max_positions, ErrorClass::config,
                  cat("model.max_positions (", config_.max_positions,
                      ") is below model.seq_length (", context_.max_positions, ")"),
                  "shorten model.seq_length or train a longer position table");
    MT_USER_CHECK(!context_.scope.blocks().recomputes(RecomputePart::layernorm), ErrorClass::config,
                  "model.recompute_modules names layernorm, but model.type=bert adds the results "
                  "of norms to the residual stream",
                  "leave layernorm out of model.recompute_modules");
  }

  BertConfig config_;
  ModelContext context_;
  std::optional<Input> input_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<Head> head_;        // of a model of tokens
  std::optional<ScoreHead> score_;  // of a model of scores
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("bert", "BERT family: bidirectional encoders") {
  using namespace mtrain;
  registry.add<Model, Bert, BertConfig>("bert",
                                        "bidirectional encoder that predicts masked tokens");
}
