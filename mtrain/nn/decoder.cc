#include "mtrain/nn/decoder.h"

#include <cmath>

namespace mtrain {

void DecoderSettings::bind(Fields& f) {
  using enum ResumeClass;
  f("layers", layers, "number of decoder blocks")
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
  f("heads", heads, "number of query heads")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::heads)
      .renamed_from({"num_attention_heads"});
  f("kv_heads", kv_heads, "number of key/value heads; 0: heads")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::kv_heads)
      .renamed_from({"num_query_groups", "num_key_value_heads"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP in blocks without experts")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::ffn_hidden_size)
      .renamed_from({"intermediate_size"});
  f("head_dim", head_dim, "width of one head; 0: hidden_size / heads")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::head_dim)
      .renamed_from({"kv_channels"});
  f("norm_eps", norm_eps, "epsilon of RMSNorm, added to the mean square")
      .exclusive_min(0)
      .renamed_from({"rms_norm_eps", "layernorm_epsilon"});
  f("init_std", init_std, "standard deviation of weight initialization")
      .min(0)
      .resume(start)
      .renamed_from({"init_method_std", "initializer_range"});
  f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
  f.section("rope", rope);
  f.section("attention", attention);
}

HeadLayout DecoderSettings::head_layout() const {
  return layout_of_heads(hidden_size, heads, kv_heads, head_dim);
}

AttentionOptions DecoderSettings::attention_options(const RopeTable& table) const {
  return {.layout = head_layout(), .init_std = std(), .out_init_std = out_std(), .rope = &table};
}

float DecoderSettings::out_std() const {
  return static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers)));
}

void DecoderSettings::check() const {
  HeadLayout h = head_layout();
  MT_USER_CHECK(h.head_dim % 2 == 0, ErrorClass::config, cat("head dim ", h.head_dim, " is odd"),
                "rotary embeddings rotate pairs of dimensions: choose an even head dim");
}

DecoderBlock::~DecoderBlock() = default;

Decoder::Decoder(const DecoderSettings& c, const ModelContext& context, const MakeBlock& make)
    : settings_(c), context_(context) {
  const Scope& s = context.scope;
  c.check();
  rope_ = make_rope_table(s.context(), c.rope, context.max_positions, c.head_layout().head_dim);
  Dim vocab{"vocab", context.vocab_size};
  if (context.stage.first) embed_.emplace(s / "embed", vocab, c.embed(), c.std());
  Parameter* table = c.tie_embeddings
                         ? tied_table(s / "embed", context.stage, vocab, c.embed(), c.std())
                         : nullptr;
  auto [begin, end] = context.stage.layers(c.layers);
  for (int64_t i = begin; i < end; ++i) blocks_.push_back(make(s / "layers" / i, i, rope_));
  if (!context.stage.last) return;
  norm_.emplace(s / "norm", Norm::Kind::rms, c.embed(), c.eps());
  head_.emplace(s / "head", vocab, c.embed(), context.valid_vocab, table, c.std());
}

Tensor Decoder::forward(const ModelInput& input, Tensor x_TD) {
  if (embed_) x_TD = (*embed_)(input.tokens_T);
  int64_t first = context_.stage.layers(settings_.layers).first;
  auto block = [this, first, input](int64_t i, const Tensor& x) {
    return (*blocks_[static_cast<size_t>(i - first)])(x, input);
  };
  x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
  return head_ ? (*head_)((*norm_)(x_TD), input) : x_TD;
}

double Decoder::attention_products(int64_t seq_length) const {
  HeadLayout h = settings_.head_layout();
  auto d = static_cast<double>(settings_.hidden_size),
       heads = static_cast<double>(h.heads * h.head_dim);
  double core = heads * static_cast<double>(seq_length);  // scores and values, half of them masked
  return d * static_cast<double>(h.width()) + heads * d + core;
}

double Decoder::head_products() const {
  return static_cast<double>(settings_.hidden_size) * static_cast<double>(context_.vocab_size);
}

}  // namespace mtrain
