#include "mtrain/train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/rng.h"
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

void require_next_token_model(const Recipe& recipe, PluginHost& plugins) {
  const std::string& type = recipe.settings.model.type;
  const std::string& learned = plugins.load(Model::kKind, type).schema.objective;
  MT_USER_CHECK(learned.empty() || learned == Dataset::kNextToken, ErrorClass::config,
                cat("model.type=", type, " was trained on the ", learned,
                    ", not on the next token, so it cannot continue a text"),
                "use a model that predicts the next token, such as gpt2, llama or moe");
}

std::vector<float> Generator::logits(std::span<const int32_t> tokens) {
  ExecutionContext& ctx = *session_.ctx;
  GradMode off(ctx, false);
  bool before = std::exchange(ctx.training, false);
  auto count = static_cast<int32_t>(tokens.size());
  MicroBatch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.positions.resize(tokens.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.cu_seqlens = {0, count};
  Model& model = *session_.model;
  Tensor out = call_plugin(model, "forward()",
                           [&] { return model.forward(to_device(ctx, batch, false), {}); });
  ctx.training = before;
  Tensor floats = ctx.empty(out.shape(), DType::f32);
  ctx.copy(floats, out);
  std::vector<float> all(static_cast<size_t>(floats.numel())), valid;
  ctx.download(floats, all.data());
  auto stride = static_cast<size_t>(out.size(1)), width = static_cast<size_t>(session_.valid_vocab);
  for (size_t row = 0; row < tokens.size(); ++row)
    valid.insert(valid.end(), all.begin() + static_cast<ptrdiff_t>(row * stride),
                 all.begin() + static_cast<ptrdiff_t>(row * stride + width));
  return valid;
}

std::vector<int32_t> Generator::generate(std::vector<int32_t> prompt,
                                         const SamplingOptions& options,
                                         const std::function<void(int32_t)>& on_token) {
  auto eod = session_.tokenizer->eod();
  auto window = static_cast<size_t>(session_.recipe.settings.model.seq_length),
       width = static_cast<size_t>(session_.valid_vocab);
  const auto with_text = std::min(
      width,
      static_cast<size_t>(
          session_.tokenizer->vocab_size()));  // padding rows of the vocabulary have no logits
  if (prompt.empty()) prompt.push_back(eod.value_or(0));
  if (prompt.size() > window)
    log_warn("the prompt has ", prompt.size(), " tokens, and only its last ", window,
             " are read: model.seq_length is ", window);
  RngStream random(options.seed, "generate");
  std::vector<int32_t> text = std::move(prompt), made;
  while (static_cast<int64_t>(made.size()) < options.max_tokens) {
    std::span<const int32_t> seen(text);
    if (seen.size() > window) seen = seen.last(window);
    std::vector<float> all = logits(seen);
    int32_t id = sample_token(std::span(all).last(width).first(with_text), options,
                              random.uniform(made.size()));
    if ((eod && id == *eod) ||
        std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end())
      break;
    made.push_back(id);
    text.push_back(id);
    if (on_token) on_token(id);
  }
  return made;
}

}  // namespace mtrain
