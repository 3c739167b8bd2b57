// The texts that the trainer generates from validation.prompts after a validation.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/rng.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

using nlohmann::json;

/// Sends a text to rank 0: [index, text, tokens, ended].
json sent_text(size_t index, const Generations::Text& one) {
  return {index, one.text, one.tokens, one.ended};
}

void take_texts(const std::string& bytes, std::vector<Generations::Text>& texts) {
  for (const json& one : json::parse(bytes)) {
    Generations::Text& text = texts.at(one.at(0).get<size_t>());
    text.text = one.at(1).get<std::string>();
    text.tokens = one.at(2).get<int64_t>(), text.ended = one.at(3).get<bool>();
  }
}

/// The text of a micro-batch of one, followed by a sequence of padding up to a multiple, but to no
/// more tokens than a sample has.
MicroBatch padded(const MicroBatch& batch, int64_t multiple, int64_t most) {
  MicroBatch out = batch;
  const auto tokens = std::ssize(batch.tokens),
             all = std::min((tokens + multiple - 1) / multiple * multiple, most);
  const auto size = static_cast<size_t>(all);
  out.tokens.resize(size, 0);
  for (int64_t t = tokens; t < all; ++t) out.positions.push_back(static_cast<int32_t>(t - tokens));
  if (all > tokens) out.cu_seqlens.push_back(static_cast<int32_t>(all));
  out.targets.assign(size, kIgnoredTarget);
  out.padding = {static_cast<int32_t>(all - tokens)};
  out.rows = 1, out.seq_length = all;
  return out;
}

/// The row of a token among this rank's rows; -1: another rank has it.
int64_t own_row(const ModelInput& input, int64_t token) {
  if (!input.cp_slice) return token;
  int64_t row = 0;
  for (const RowRange& range : input.cp_slice->tokens()) {
    if (token >= range.first && token < range.first + range.rows) return row + token - range.first;
    row += range.rows;
  }
  return -1;
}

}  // namespace

bool Trainer::generates_together() const {
  const DistSection& dist = recipe_.settings.dist;
  return dist.cp > 1 || dist.ep > 1 || dist.etp > 1 || dist.zero == 3;
}

SharedModel Trainer::shared_model() {
  Communicator& ranks = generates_together() ? ranks_ : mesh_.copy();
  SharedModel out;
  out.logits = [this](const MicroBatch& batch, int64_t row) { return shared_logits(batch, row); };
  if (ranks.size() > 1)
    out.largest = [&ranks](int32_t value) { return ranks.all_reduce_value(value, ReduceOp::max); };
  return out;
}

std::vector<float> Trainer::shared_logits(const MicroBatch& batch, int64_t row) {
  ExecutionContext& ctx = *session_.ctx;
  const MemoryScope use(ctx.memory(), MemoryUse::activations);
  const Settings& s = recipe_.settings;
  const Axis* tensor = mesh_.parallel().tp;
  // A layout divides the tokens evenly; and the text has another length with every token, but only
  // some of these shapes, for which a GPU's libraries choose algorithms.
  constexpr int64_t kTokens = 16;
  const int64_t pieces = s.dist.tp * s.dist.cp * (s.dist.cp > 1 ? 2 : 1);
  ModelInput input =
      own_part(ctx, padded(batch, std::lcm(kTokens, pieces), s.model.seq_length), mesh_.parallel());
  const int64_t own = own_row(input, row);
  input.targets_T = {};
  input.logits_row = std::max<int64_t>(own, input.tokens_T.numel() > 0 ? 0 : -1);
  input.logits_of_part = active_axis(tensor) != nullptr;
  interpreter_->forget_shapes();  // the text grows
  Tensor out = interpreter_->logits(input);
  if (!out.defined()) return {};
  if (out.size(0) > 1) out = out.slice(0, input.logits_row, input.logits_row + 1);
  Tensor floats = ctx.empty(out.shape(), DType::f32);
  ctx.copy(floats, out);
  std::vector<float> logits(static_cast<size_t>(session_.vocab_size));
  if (out.size(1) < session_.vocab_size) {  // the other ranks' are added to zeros
    ctx.download(floats, logits.data() + even_piece(session_.vocab_size, tensor).global);
    tensor->comm().all_reduce(std::span(logits));
  } else {
    ctx.download(floats, logits.data());
  }
  if (own < 0) return {};
  logits.resize(static_cast<size_t>(session_.valid_vocab));
  return logits;
}

void Trainer::encode_prompts() {
  const std::vector<std::string>& texts = recipe_.settings.validation.prompts;
  prompts_.clear();
  if (texts.empty()) return;
  require_generating_model(recipe_, session_.plugins);
  const Generator generator(session_);
  const auto most = static_cast<size_t>(generator.most_read());
  for (size_t i = 0; i < texts.size(); ++i) {
    auto asked = call_plugin(*dataset_, "ask()", [&] { return dataset_->ask(texts[i]); });
    AskedPrompt& prompt = prompts_.emplace_back(
        asked ? std::move(*asked) : AskedPrompt{.ids = session_.tokenizer->encode(texts[i])});
    std::vector<int32_t>& ids = prompt.ids;
    if (ids.size() <= most) continue;
    if (first())
      log_warn("validation.prompts[", i, "] has ", counted(ids.size(), "token"), ", and only its ",
               generator.answers() ? "first " : "last ", most, " are read: model.seq_length is ",
               recipe_.settings.model.seq_length);
    const auto cut = static_cast<ptrdiff_t>(most);
    ids = generator.answers() ? std::vector(ids.begin(), ids.begin() + cut)
                              : std::vector(ids.end() - cut, ids.end());
  }
}

Generations::Text Trainer::generate_text(Generator& generator, size_t prompt) {
  const Settings& s = recipe_.settings;
  const AskedPrompt& asked = prompts_[prompt];
  const GeneratedTokens made = generator.generate(
      asked.ids,
      {.max_tokens = s.validation.generate_tokens,
       .temperature = s.validation.temperature,
       .seed = name_key(cat(s.rng.seed, " generated at ", state_.step, " from ", prompt)),
       .stop = asked.ends},
      [&](const std::vector<int32_t>&) {
        failpoint("generate.token");
        return interrupted_ && interrupted_();
      });
  const bool apart = asked.turn || generator.answers();
  Generations::Text out{.prompt = s.validation.prompts[prompt],
                        .text = apart ? session_.tokenizer->decode(made.ids)
                                      : continuation(*session_.tokenizer, asked.ids, made.ids),
                        .tokens = std::ssize(made.ids),
                        .ended = made.ended};
  if (asked.trim_answer(out.text)) out.ended = true;
  return out;
}

void Trainer::gather_texts(std::vector<Generations::Text>& texts, const std::vector<size_t>& mine) {
  if (ranks_.size() == 1) return;
  json list = json::array();
  for (const size_t i : mine) list.push_back(sent_text(i, texts[i]));
  std::string own = list.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto width = static_cast<size_t>(ranks_.all_reduce_value(std::ssize(own), ReduceOp::max));
  own.resize(width, ' ');  // blanks after a JSON text
  std::string all(width * static_cast<size_t>(ranks_.size()), '\0');
  ranks_.all_gather({own.data(), std::ssize(own), DType::u8},
                    {all.data(), std::ssize(all), DType::u8});
  if (!first()) return;
  for (size_t at = 0; at < all.size(); at += width) take_texts(all.substr(at, width), texts);
}

void Trainer::generate_texts() {
  if (prompts_.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  const LongOperation generating(ranks_.activity(), "generating texts");
  const bool alone = ranks_.size() == 1 && !generates_together() && Generator::can_cache(session_);
  std::optional<Generator> generator(std::in_place, session_,
                                     alone ? SharedModel() : shared_model());
  Generations made{.step = state_.step};
  for (const std::string& prompt : recipe_.settings.validation.prompts)
    made.texts.push_back({.prompt = prompt});
  std::vector<size_t> mine;
  const bool together = generates_together();
  const auto parts = static_cast<size_t>(together ? 1 : mesh_.data().size()),
             part = static_cast<size_t>(together ? 0 : mesh_.data().index());
  for (size_t begin = 0; begin < prompts_.size() && !stops_now(); begin += parts) {
    const size_t i = begin + part;
    if (i >= prompts_.size()) continue;
    made.texts[i] = generate_text(*generator, i);
    mine.push_back(i);
  }
  generator.reset();  // and its cache
  interpreter_->forget_shapes();
  buckets_->release_values();
  session_.ctx->memory().release_cached();  // of texts of many lengths
  if (stops_now())
    return event(cat("the texts after step ", state_.step,
                     " are not generated completely, because the run stops"));
  gather_texts(made.texts, mine);
  made.seconds = seconds_since(start);
  show(made);
}

}  // namespace mtrain
