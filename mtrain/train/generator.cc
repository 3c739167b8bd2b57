#include "mtrain/train/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/rng.h"
#include "mtrain/pipeline/evaluating.h"
#include "mtrain/train/answer_tokens.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/text_batch.h"

namespace mtrain {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double draw) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto likelier = [&](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (options.temperature <= 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> weight;
  double top = logits[static_cast<size_t>(order[0])], sum = 0;
  for (int32_t id : order) {
    weight.push_back(std::exp((logits[static_cast<size_t>(id)] - top) / options.temperature));
    sum += weight.back();
  }
  size_t kept = 0;
  double mass = 0;
  while (kept < order.size() && (kept == 0 || mass < options.top_p * sum)) mass += weight[kept++];
  double target = draw * mass;
  for (size_t i = 0; i < kept; ++i)
    if ((target -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

namespace {

std::string objective_of(const Recipe& recipe, PluginHost& plugins) {
  return plugins.load(Model::kKind, recipe.settings.model.type).schema.objective;
}

}  // namespace

void require_generating_model(const Recipe& recipe, PluginHost& plugins) {
  const std::string learned = objective_of(recipe, plugins);
  MT_USER_CHECK(
      learned.empty() || learned == Dataset::kNextToken || learned == Dataset::kSequenceToSequence,
      ErrorClass::config,
      cat("the objective of model.type=", recipe.settings.model.type, " is '", learned, "', not '",
          Dataset::kNextToken, "', so it cannot continue a text"),
      "use a model that predicts the next token, such as gpt2, llama or moe");
}

std::string continuation(const Tokenizer& tokenizer, std::vector<int32_t> prompt,
                         const std::vector<int32_t>& ids) {
  const std::string before = tokenizer.decode(prompt);
  prompt.insert(prompt.end(), ids.begin(), ids.end());
  const std::string all = tokenizer.decode(prompt);
  return all.starts_with(before) ? all.substr(before.size()) : tokenizer.decode(ids);
}

bool ends_text(int32_t id, std::optional<int32_t> end, const SamplingOptions& options) {
  return (end && id == *end) || std::ranges::find(options.stop, id) != options.stop.end();
}

Generator::Generator(Session& session, SharedModel shared)
    : session_(session), shared_(std::move(shared)) {
  const Recipe& recipe = session.recipe;
  const Node* labels = recipe.config.root().find("model.labels");
  MT_USER_CHECK(!labels || !labels->is(NodeKind::integer) || labels->as_int() == 0,
                ErrorClass::config,
                cat("the model has a score head (model.labels=", labels ? brief(*labels) : "",
                    ") and predicts no tokens"),
                "generate from a model with a vocabulary head; `mtrain eval` measures a "
                "model of scores");
  if (!shared_.logits && can_cache(session)) cache_.emplace(most_read());
  if (objective_of(recipe, session.plugins) != Dataset::kSequenceToSequence) return;
  const Node* length = recipe.config.root().find("model.decoder_seq_length");
  MT_USER_CHECK(
      length && length->is(NodeKind::integer), ErrorClass::plugin,
      cat("the objective of model.type=", recipe.settings.model.type, " is '",
          Dataset::kSequenceToSequence, "', but it has no setting decoder_seq_length"),
      "add model.decoder_seq_length, the number of the decoder's positions, to the plugin "
      "(docs/adding-a-model.md)");
  const AnswerTokens tokens = answer_tokens(recipe, *session.tokenizer);
  answer_ = {.encoder = static_cast<size_t>(recipe.settings.model.seq_length - length->as_int()),
             .decoder = static_cast<size_t>(length->as_int()),
             .start = tokens.start,
             .end = tokens.end};
}

std::vector<float> Generator::logits(std::span<const int32_t> tokens) {
  return logits_of(batch_of(tokens), -1);
}

/// Scales of whole activations would depend on the tokens that are read together.
bool Generator::can_cache(const Session& session) {
  return session.model->continues_texts() &&
         !session.recipe.settings.mixed_precision.quantized_products();
}

std::vector<float> Generator::logits_after(std::span<const int32_t> text) {
  if (!cache_) return logits_of(batch_of(text), std::ssize(text) - 1);
  const auto differs = std::ranges::mismatch(cached_, text).in1;
  const int64_t known = std::min(differs - cached_.begin(), std::ssize(text) - 1);
  cache_->keep(known);
  cached_.resize(static_cast<size_t>(known));  // also if the forward throws
  const auto further = text.subspan(static_cast<size_t>(known));
  cache_->read({{.text = 0, .tokens = std::ssize(further)}});
  std::vector<float> out = logits_of(batch_of(further, known), std::ssize(further) - 1, &*cache_);
  cache_->advance();
  cached_.assign(text.begin(), text.end());
  return out;
}

std::vector<float> Generator::logits_of(const MicroBatch& batch, int64_t row,
                                        KeyValueCache* cache) {
  if (shared_.logits) return shared_.logits(batch, row);
  ExecutionContext& ctx = *session_.ctx;
  const Evaluating evaluating(ctx);
  const MemoryScope use(ctx.memory(), MemoryUse::activations);
  Model& model = *session_.model;
  ModelInput input = to_device(ctx, batch, false);
  input.logits_row = row;
  input.cache = cache;
  Tensor out = call_plugin(model, "forward()", [&] { return model.forward(input, {}); });
  if (row >= 0 && out.size(0) > 1) out = out.slice(0, row, row + 1);  // its head computes all
  Tensor floats = ctx.empty(out.shape(), DType::f32);
  ctx.copy(floats, out);
  std::vector<float> all(static_cast<size_t>(floats.numel())), valid;
  ctx.download(floats, all.data());
  auto stride = static_cast<size_t>(out.size(1)), width = static_cast<size_t>(session_.valid_vocab);
  for (size_t r = 0; r < static_cast<size_t>(out.size(0)); ++r)
    valid.insert(valid.end(), all.begin() + static_cast<ptrdiff_t>(r * stride),
                 all.begin() + static_cast<ptrdiff_t>(r * stride + width));
  return valid;
}

int64_t Generator::most_read() const {
  return answer_ ? static_cast<int64_t>(answer_->encoder) - 1  // and the end token
                 : session_.recipe.settings.model.seq_length;
}

/// The sample as the dataset t5_seq2seq makes it: the encoder's unused positions are a sequence of
/// their own, and hold the end token as those of the decoder do.
std::vector<float> Generator::answer_logits(std::span<const int32_t> prompt,
                                            std::span<const int32_t> answer) {
  const auto [encoder, decoder, start, end] = *answer_;
  MicroBatch batch;
  batch.tokens.assign(encoder + decoder, end);
  std::copy(prompt.begin(), prompt.end(), batch.tokens.begin());
  batch.tokens[encoder] = start;
  std::copy(answer.begin(), answer.end(),
            batch.tokens.begin() + static_cast<ptrdiff_t>(encoder) + 1);
  batch.cu_seqlens = {0, static_cast<int32_t>(prompt.size())};
  for (size_t bound : {encoder, encoder + decoder})
    if (static_cast<size_t>(batch.cu_seqlens.back()) < bound)
      batch.cu_seqlens.push_back(static_cast<int32_t>(bound));
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s)
    for (int32_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t)
      batch.positions.push_back(t - batch.cu_seqlens[s]);
  return logits_of(batch, static_cast<int64_t>(answer.size()));
}

GeneratedTokens Generator::answer(std::vector<int32_t> prompt, const SamplingOptions& options,
                                  const Stop& stop) {
  const auto [encoder, decoder, start, end] = *answer_;
  if (prompt.empty() || prompt.back() != end) prompt.push_back(end);
  if (prompt.size() > encoder) {
    log_warn("the prompt has ", prompt.size(), " tokens with its end token, and only its first ",
             encoder - 1, " and the end token are read: the encoder has ", encoder,
             " of the model.seq_length positions");
    prompt.resize(encoder);
    prompt.back() = end;
  }
  return generate([&](const std::vector<int32_t>& made) { return answer_logits(prompt, made); },
                  std::min(options.max_tokens, static_cast<int64_t>(decoder)), end, options, stop);
}

int32_t Generator::next_id(const std::vector<float>& logits, const SamplingOptions& options,
                           double draw, bool stop) const {
  constexpr int32_t kStops = std::numeric_limits<int32_t>::max();
  // Padding rows of the vocabulary have no text.
  const auto with_text =
      static_cast<size_t>(std::min(session_.valid_vocab, session_.tokenizer->vocab_size()));
  const int32_t own = stop ? kStops
                      : logits.empty()
                          ? -1
                          : sample_token(std::span(logits).first(with_text), options, draw);
  const int32_t id = shared_.largest ? shared_.largest(own) : own;
  return id == kStops ? -1 : id;
}

/// `next_logits(made)`: those of the token after the generated ones.
GeneratedTokens Generator::generate(
    const std::function<std::vector<float>(const std::vector<int32_t>& made)>& next_logits,
    int64_t most, std::optional<int32_t> end, const SamplingOptions& options, const Stop& stop) {
  RngStream random(options.seed, "generate");
  GeneratedTokens out;
  std::vector<int32_t>& made = out.ids;
  while (static_cast<int64_t>(made.size()) < most) {
    const bool stops = stop && stop(made);
    if (stops && !shared_.largest) break;
    const int32_t id = next_id(next_logits(made), options, random.uniform(made.size()), stops);
    if (id < 0) break;
    out.ended = ends_text(id, end, options);
    if (out.ended) break;
    made.push_back(id);
  }
  return out;
}

std::vector<int32_t> Generator::accepted_prompt(std::vector<int32_t> prompt) const {
  const auto window = static_cast<size_t>(most_read());
  if (prompt.empty()) prompt.push_back(session_.tokenizer->eod().value_or(0));
  if (prompt.size() > window)
    log_warn("the prompt has ", prompt.size(), " tokens, and only its last ", window,
             " are read: model.seq_length is ", window);
  return prompt;
}

GeneratedTokens Generator::generate(std::vector<int32_t> prompt, const SamplingOptions& options,
                                    const Stop& stop) {
  if (answer_) return answer(std::move(prompt), options, stop);
  const auto window = static_cast<size_t>(most_read());
  prompt = accepted_prompt(std::move(prompt));
  auto next_logits = [&](const std::vector<int32_t>& made) {
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), made.begin(), made.end());
    return logits_after(std::span(text).last(std::min(text.size(), window)));
  };
  return generate(next_logits, options.max_tokens, session_.tokenizer->eod(), options, stop);
}

}  // namespace mtrain
