#include "mtrain/train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/rng.h"
#include "mtrain/train/answer_tokens.h"
#include "mtrain/train/model_input.h"

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

Generator::Generator(Session& session) : session_(session) {
  const Recipe& recipe = session.recipe;
  const Node* labels = recipe.config.root().find("model.labels");
  MT_USER_CHECK(!labels || !labels->is(NodeKind::integer) || labels->as_int() == 0,
                ErrorClass::config,
                cat("the model has a score head (model.labels=", labels ? brief(*labels) : "",
                    ") and predicts no tokens"),
                "generate from a model with a vocabulary head; `mtrain eval` measures a "
                "model of scores");
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
  auto count = static_cast<int32_t>(tokens.size());
  MicroBatch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.positions.resize(tokens.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.cu_seqlens = {0, count};
  return logits_of(batch);
}

std::vector<float> Generator::logits_of(const MicroBatch& batch) {
  ExecutionContext& ctx = *session_.ctx;
  GradMode off(ctx, false);
  bool before = std::exchange(ctx.training, false);
  Model& model = *session_.model;
  Tensor out = call_plugin(model, "forward()",
                           [&] { return model.forward(to_device(ctx, batch, false), {}); });
  ctx.training = before;
  Tensor floats = ctx.empty(out.shape(), DType::f32);
  ctx.copy(floats, out);
  std::vector<float> all(static_cast<size_t>(floats.numel())), valid;
  ctx.download(floats, all.data());
  auto stride = static_cast<size_t>(out.size(1)), width = static_cast<size_t>(session_.valid_vocab);
  for (size_t row = 0; row < static_cast<size_t>(out.size(0)); ++row)
    valid.insert(valid.end(), all.begin() + static_cast<ptrdiff_t>(row * stride),
                 all.begin() + static_cast<ptrdiff_t>(row * stride + width));
  return valid;
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
  return logits_of(batch);
}

std::vector<int32_t> Generator::answer(std::vector<int32_t> prompt, const SamplingOptions& options,
                                       const std::function<void(int32_t)>& on_token) {
  const auto [encoder, decoder, start, end] = *answer_;
  if (prompt.empty() || prompt.back() != end) prompt.push_back(end);
  if (prompt.size() > encoder) {
    log_warn("the prompt has ", prompt.size(), " tokens with its end token, and only its first ",
             encoder - 1, " and the end token are read: the encoder has ", encoder,
             " of the model.seq_length positions");
    prompt.resize(encoder);
    prompt.back() = end;
  }
  std::vector<int32_t> made;
  std::vector<float> all;
  auto logits_at = [&](size_t count) {
    all = answer_logits(prompt, made);
    const auto width = static_cast<size_t>(session_.valid_vocab);
    return std::span<const float>(all).subspan(count * width, width);
  };
  return generate(logits_at, std::min(options.max_tokens, static_cast<int64_t>(decoder)), end,
                  options, [&](int32_t id) {
                    made.push_back(id);
                    if (on_token) on_token(id);
                  });
}

/// `logits_at(n)`: those of the token after n generated ones, in the last row up to that token.
std::vector<int32_t> Generator::generate(
    const std::function<std::span<const float>(size_t)>& logits_at, int64_t most,
    std::optional<int32_t> end, const SamplingOptions& options,
    const std::function<void(int32_t)>& on_token) {
  const auto width = static_cast<size_t>(session_.valid_vocab);
  const auto with_text = std::min(
      width,
      static_cast<size_t>(
          session_.tokenizer->vocab_size()));  // padding rows of the vocabulary have no logits
  RngStream random(options.seed, "generate");
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < most) {
    const int32_t id =
        sample_token(logits_at(made.size()).first(with_text), options, random.uniform(made.size()));
    if ((end && id == *end) ||
        std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end())
      break;
    made.push_back(id);
    on_token(id);
  }
  return made;
}

std::vector<int32_t> Generator::generate(std::vector<int32_t> prompt,
                                         const SamplingOptions& options,
                                         const std::function<void(int32_t)>& on_token) {
  if (answer_) return answer(std::move(prompt), options, on_token);
  auto eod = session_.tokenizer->eod();
  auto window = static_cast<size_t>(session_.recipe.settings.model.seq_length),
       width = static_cast<size_t>(session_.valid_vocab);
  if (prompt.empty()) prompt.push_back(eod.value_or(0));
  if (prompt.size() > window)
    log_warn("the prompt has ", prompt.size(), " tokens, and only its last ", window,
             " are read: model.seq_length is ", window);
  std::vector<int32_t> text = std::move(prompt);
  std::vector<float> all;
  auto logits_at = [&](size_t) {
    std::span<const int32_t> seen(text);
    if (seen.size() > window) seen = seen.last(window);
    all = logits(seen);
    return std::span<const float>(all).last(width);
  };
  return generate(logits_at, options.max_tokens, eod, options, [&](int32_t id) {
    text.push_back(id);
    if (on_token) on_token(id);
  });
}

}  // namespace mtrain
