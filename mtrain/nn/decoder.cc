#include "mtrain/nn/decoder.h"

#include <algorithm>
#include <cmath>

#include "mtrain/autograd/multi_token_ops.h"
#include "mtrain/autograd/noise_ops.h"
#include "mtrain/base/rng.h"

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
  f("norm_eps", norm_eps, "epsilon of norms, added to the mean square or the variance")
      .exclusive_min(0)
      .renamed_from({"rms_norm_eps", "layernorm_epsilon"});
  f("init_std", init_std, "standard deviation of weight initialization")
      .min(0)
      .resume(start)
      .renamed_from({"init_method_std", "initializer_range"});
  f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
  bind_labels(f, labels, labels_of);
  block.bind(f);
  f.section("rope", rope);
  f.section("attention", attention);
  f.section("mtp", mtp);
}

HeadLayout DecoderSettings::head_layout() const {
  return layout_of_heads(hidden_size, heads, kv_heads, head_dim);
}

AttentionOptions DecoderSettings::attention_options(const RopeTable& table, int64_t index) const {
  AttentionSinks sinks = attention.softmax == "off_by_one"  ? AttentionSinks::zero
                         : attention.softmax == "learnable" ? AttentionSinks::learned
                                                            : AttentionSinks::none;
  return {
      .layout = latent ? latent->heads.layout() : head_layout(),
      .bias = attention.has_qkv_bias(),
      .out_bias = attention.has_out_bias(),
      .qk_norm = attention.norm_options(eps(), block.norm_zero_centered),
      .clip = static_cast<float>(attention.clip_qkv),
      .gate = attention.output_gate,
      .init_std = std(),
      .out_init_std = out_std(),
      .rope = attention.has_rope(index) ? &table : nullptr,
      .window = attention.window_of(index),
      .scale = static_cast<float>(attention.softmax_scale.value_or(latent ? latent_scale() : 0)),
      .cap = static_cast<float>(attention.logit_cap),
      .dropout = static_cast<float>(attention.dropout),
      .sinks = sinks};
}

double DecoderSettings::latent_scale() const {
  const double factor = rope.softmax_factor();
  return factor / std::sqrt(static_cast<double>(latent->heads.query()));
}

RopeConfig DecoderSettings::rope_of(int64_t index) const {
  return attention.window_of(index) > 0 ? rope.local() : rope;
}

float DecoderSettings::out_std() const {
  return static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers)));
}

void DecoderSettings::check() const {
  rope.check(rotary_head_dim());
  block.check();
  attention.check(layers);
  MT_USER_CHECK(labels == 0 || mtp.layers == 0, ErrorClass::config,
                cat("model.labels=", labels, " cannot be combined with model.mtp.layers=",
                    mtp.layers, ": a model of scores predicts no tokens"),
                "set model.mtp.layers=0");
}

namespace {

/// A bias of the head next to the tied table with which it is used, if that is on this rank, so
/// that both are gathered together.
void add_head_bias(const Scope& scope, const StageRange& stage, const Dim& vocab) {
  if (stage.first && !active_axis(scope.parallel().embedding_group))
    (scope / "head").param("bias", {vocab}, Init::zeros(), false, ParamRole::bias);
}

}  // namespace

Decoder::Decoder(const DecoderSettings& c, const ModelContext& context, const MakeBlock& make)
    : settings_(c), context_(context) {
  const Scope& s = context.scope;
  c.check();
  const int64_t head_dim = c.rotary_head_dim(), positions = context.max_positions;
  Dim vocab{"vocab", context.vocab_size};
  if (context.stage.first) embed_.emplace(s / "embed", vocab, c.embed(), c.std());
  embedding_factor_ = c.block.embedding_factor(c.hidden_size, s.dtype());
  noise_ = embedding_noise_size(c.block.embedding_noise, positions, c.hidden_size);
  noise_key_ = name_key((s / "embed" / "noise").path());
  const StageRange& stage = context.stage;
  const bool ahead = c.mtp.layers > 0, has_mtp = ahead && stage.has_mtp();
  Parameter* shared = nullptr;
  if ((c.ties_head() && (stage.first || stage.last)) || (ahead && (stage.first || has_mtp)))
    shared = &shared_table(s / "embed", stage, vocab, c.embed(), c.std());
  Parameter* table = c.ties_head() ? shared : nullptr;
  if (table && c.block.head_bias) add_head_bias(s, context.stage, vocab);
  auto [begin, end] = context.stage.layers(c.layers);
  auto make_block = [&](const Scope& scope, int64_t i) {
    RopeTable& rope = c.attention.window_of(i) > 0 && c.rope.local_theta > 0 ? local_rope_ : rope_;
    if (!rope.cos.defined()) rope = make_rope_table(s.context(), c.rope_of(i), positions, head_dim);
    return make(scope, i, rope);
  };
  for (int64_t i = begin; i < end; ++i) blocks_.push_back(make_block(s / "layers" / i, i));
  if (ahead && stage.mtp_apart() ? has_mtp : stage.last)
    norm_.emplace(s / "norm", c.block.norm_options(c.eps()), c.embed());
  if (stage.last) build_head(vocab, table);
  if (!has_mtp) return;
  mtp_.emplace(s,
               MultiTokenPrediction::Options{.settings = c.mtp,
                                             .embed = c.embed(),
                                             .vocab = vocab,
                                             .norm = c.block.norm_options(c.eps()),
                                             .init_std = c.std(),
                                             .embedding_factor = embedding_factor_,
                                             .layers = c.layers},
               *shared, [&](const Scope& scope) { return make_block(scope, c.layers - 1); });
}

void Decoder::build_head(const Dim& vocab, Parameter* table) {
  const DecoderSettings& c = settings_;
  const Scope& s = context_.scope;
  if (c.labels > 0) {
    score_.emplace(s, c.embed(), c.labels, c.labels_of, c.std());
    return;
  }
  MT_USER_CHECK(!table || !c.block.head_bias || !context_.stage.mtp_apart() ||
                    table->stage == context_.stage.stage,
                ErrorClass::config,
                "model.head_bias and model.tie_embeddings cannot be combined with multi-token "
                "prediction in a stage before the last one where embedding and head are on one "
                "rank",
                "use a schedule with embedding and head on different ranks, or put multi-token "
                "prediction (m) into the last stage");
  head_.emplace(s / "head", vocab, c.embed(), context_.valid_vocab, table, c.std(),
                c.block.head_bias, c.block.logits());
  if (c.mtp.layers > 0) mtp_losses_.emplace(s.context(), c.mtp);
}

Tensor Decoder::forward(const ModelInput& input, Tensor x_TD) {
  if (embed_) x_TD = add_noise((*embed_)(input.tokens_T), noise_, noise_key_);
  if (embed_ && embedding_factor_ != 1) x_TD = scale(x_TD, embedding_factor_);
  int64_t first = context_.stage.layers(settings_.layers).first;
  auto block = [this, first, input](int64_t i, const Tensor& x) {
    return (*blocks_[static_cast<size_t>(i - first)])(x, input);
  };
  x_TD = run_blocks(context_.scope.blocks(), first, first + std::ssize(blocks_), block, x_TD);
  if (norm_) x_TD = (*norm_)(x_TD);
  if (score_) return (*score_)(x_TD);
  if (head_) return losses(x_TD, input);
  return mtp_ ? streams(x_TD, input) : x_TD;
}

namespace {

/// Further tokens are predicted only for their gradients.
bool trains(const ModelInput& input, const Tensor& x) {
  return input.targets_T.defined() && x.context().grad_enabled;
}

}  // namespace

/// What a stage with multi-token prediction and without the head passes on.
Tensor Decoder::streams(const Tensor& normed_TD, const ModelInput& input) const {
  Tensor all = normed_TD;
  if (!trains(input, normed_TD)) return all;
  mtp_->each_stream(normed_TD, input,
                    [&](size_t, const Tensor& one_TD) { all = join_rows(all, one_TD); });
  return all;
}

/// `normed_TD`: of the next token, and with multi-token prediction in an earlier stage of all
/// depths.
Tensor Decoder::losses(const Tensor& normed_TD, const ModelInput& input) {
  if (!mtp_losses_ || !trains(input, normed_TD)) return (*head_)(normed_TD, input);
  std::vector<Tensor> further;
  auto add = [&](size_t k, const Tensor& one_TD) {
    further.push_back((*mtp_losses_)(k, one_TD, input, *head_));
  };
  Tensor next_TD = normed_TD;
  if (mtp_) {
    mtp_->each_stream(normed_TD, input, add);
  } else {
    const int64_t depths = settings_.mtp.layers, rows = normed_TD.size(0) / (depths + 1);
    for (int64_t k = 0; k < depths; ++k)
      add(static_cast<size_t>(k), take_rows(normed_TD, (k + 1) * rows, rows));
    next_TD = take_rows(normed_TD, 0, rows);
  }
  Tensor loss_T = (*head_)(next_TD, input);
  for (const Tensor& one_T : further) loss_T = attach_loss(loss_T, one_T, mtp_losses_->factor());
  return loss_T;
}

std::vector<ComputedPart> Decoder::parts() const {
  std::vector<ComputedPart> out;
  if (!mtp_ && mtp_losses_) {  // the blocks are in an earlier stage
    out.push_back({"head"});
    if (settings_.ties_head()) out.back().reads.emplace_back("embed");
  }
  if (!mtp_) return out;
  const bool own_head = !settings_.ties_head() || settings_.block.head_bias;
  if (embed_) out.push_back({"embed"});
  // One op reads the tied table and the bias next to it, so that they have the same readers.
  if (embed_ && head_ && settings_.ties_head() && own_head) out.back().reads.emplace_back("head");
  auto [begin, end] = context_.stage.layers(settings_.layers);
  for (int64_t i = begin; i < end; ++i) out.push_back({cat("layers.", i)});
  if (!head_) {
    out.push_back({"norm"});
    for (ComputedPart& part : mtp_->parts({"embed"})) out.push_back(std::move(part));
    return out;
  }
  std::vector<std::string> reads = {"embed", "norm"};
  if (own_head) reads.emplace_back("head");
  for (ComputedPart& part : mtp_->parts(reads)) out.push_back(std::move(part));
  out.push_back({"head", {"norm"}});
  if (settings_.ties_head()) out.back().reads.emplace_back("embed");
  return out;
}

std::vector<StepFigure> Decoder::end_step(bool /*updated*/) {
  return MtpLosses::end_step(settings_.mtp, mtp_losses_ ? &*mtp_losses_ : nullptr,
                             context_.scope.parallel());
}

double Decoder::attention_products(int64_t seq_length, int64_t block) const {
  auto d = static_cast<double>(settings_.hidden_size);
  // Scores and values: a token attends to half of the others on average, or to a window without
  // what the first tokens lack of it.
  auto tokens = static_cast<double>(seq_length),
       window = std::min(tokens, static_cast<double>(settings_.attention.window_of(block)));
  const double keys = window > 0 ? window * (2 - window / tokens) : tokens;
  if (settings_.latent) {
    const LatentHeads& of = settings_.latent->heads;
    const auto q_rank = static_cast<double>(settings_.latent->q_rank),
               kv_rank = static_cast<double>(settings_.latent->kv_rank),
               query = static_cast<double>(of.heads * of.query()),
               plain = static_cast<double>(of.heads * of.plain),
               value = static_cast<double>(of.heads * of.value);
    return (q_rank > 0 ? q_rank * (d + query) : d * query) +
           d * (kv_rank + static_cast<double>(of.rotary)) + kv_rank * (plain + value) + d * value +
           (query + value) / 2 * keys;
  }
  HeadLayout h = settings_.head_layout();
  const auto heads = static_cast<double>(h.heads * h.head_dim);
  double core = heads * keys;
  double gate = settings_.attention.output_gate ? heads * d : 0;
  return d * static_cast<double>(h.width()) + heads * d + gate + core;
}

double Decoder::mlp_products(int64_t width) const {
  return static_cast<double>(settings_.block.mlp_matrices() * settings_.hidden_size) *
         static_cast<double>(width);
}

double Decoder::mtp_products(double block) const {
  const auto d = static_cast<double>(settings_.hidden_size);
  return static_cast<double>(settings_.mtp.layers) * (2 * d * d + block + head_products());
}

double Decoder::head_products() const {
  return static_cast<double>(settings_.hidden_size) *
         static_cast<double>(settings_.labels > 0 ? settings_.labels : context_.vocab_size);
}

}  // namespace mtrain
