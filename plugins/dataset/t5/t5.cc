// The t5 dataset: span corruption of prepared text for a model that predicts the next token. A
// sample is one sequence: the text with a sentinel in place of each removed span, the end token,
// each span after its sentinel, the end token.
#include <algorithm>
#include <memory>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/data/span_corruption.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct T5Config {
  PreparedSettings data;
  SpanShares shares;
  int64_t sentinels = 100;
  std::string sentinel = "<extra_id_{}>", end_token, loss = "targets";

  void bind(Fields& f) {
    data.bind(f);
    f("mask_probability", shares.mask_probability,
      "fraction of tokens that are moved to the targets")
        .exclusive_min(0)
        .exclusive_max(1);
    f("mean_span", shares.mean_span, "mean length of a removed span").min(1).unit("tokens");
    f("sentinels", sentinels,
      "maximum number of sentinel tokens; each removed span of a sample needs one")
        .min(1)
        .renamed_from({"vocab_extra_ids"});
    f("sentinel", sentinel,
      "name of the sentinels among the tokenizer's special tokens, with {} for 0, 1, 2 …; empty: "
      "the last ids of the vocabulary, in descending order")
        .example("<extra_id_{}>");
    f("closing_sentinel", shares.closing_sentinel,
      "add a sentinel after the last span, before the end token");
    f("end_token", end_token,
      "the special token at the end of the input and at the end of the targets; empty: the "
      "end-of-document token")
        .example("</s>");
    f("loss", loss,
      "text that contributes to the loss; targets: the spans with their sentinels and the end "
      "token, all: also the input text")
        .one_of({"targets", "all"});
  }
};

/// Texts with spans removed; inputs and targets are one sequence. The removed spans of item i are a
/// function of the seed and i, so a text that is used again in a later epoch has other spans.
class SpanSource final : public SampleSource {
 public:
  SpanSource(std::unique_ptr<SampleSource> text, SpanCorruption corruption, std::string what,
             bool learn_all)
      : text_(std::move(text)),
        corruption_(std::move(corruption)),
        what_(std::move(what)),
        learn_all_(learn_all) {}

  int64_t size() const override { return text_->size(); }
  std::string order() const override { return text_->order(); }

  void get(int64_t index, Sample& out) const override {
    const auto length = static_cast<size_t>(corruption_.tokens());
    std::vector<int32_t> places(3 * length), ids;
    const std::span<int32_t> all(places);
    Sample text{all.first(length), all.subspan(length, length), all.last(length), {}};
    text_->get(index, text);
    try {
      corruption_.apply(static_cast<uint64_t>(index), text.tokens, ids);
    } catch (const Error& error) {
      throw Error(error.error_class(), cat(what_, ", sample ", index, ": ", error.message()),
                  error.hint());
    }
    lay(ids, out);
  }

 private:
  /// Unused positions of the sample, at most two, are filled with the end token and ignored in the
  /// loss.
  void lay(std::span<const int32_t> ids, Sample& out) const {
    const size_t seq = out.tokens.size();
    const size_t first = learn_all_ ? 1 : static_cast<size_t>(corruption_.lengths().inputs);
    MT_CHECK(ids.size() <= seq + 1, ids.size(), " tokens in ", seq, " places");
    for (size_t i = 0; i < seq; ++i) {
      out.tokens[i] = i < ids.size() ? ids[i] : ids.back();
      out.targets[i] = i + 1 >= first && i + 1 < ids.size() ? ids[i + 1] : kIgnoredTarget;
    }
    std::iota(out.positions.begin(), out.positions.end(), 0);
    out.starts.assign(1, 0);
    out.padding = static_cast<int64_t>(seq - std::min(seq, ids.size()));
  }

  std::unique_ptr<SampleSource> text_;
  SpanCorruption corruption_;
  std::string what_;
  bool learn_all_;
};

/// `count` sentinels by name, as far as the tokenizer has them.
std::vector<int32_t> named_sentinels(const Tokenizer& tokenizer, const std::string& pattern,
                                     int64_t count) {
  const size_t mark = pattern.find("{}");
  MT_USER_CHECK(mark != std::string::npos, ErrorClass::config,
                cat("dataset.sentinel: '", printable(pattern, 60), "' has no {} for the number"),
                "write it as <extra_id_{}>, or leave it empty for the last ids of the vocabulary");
  const auto special = tokenizer.special_tokens();
  std::vector<int32_t> out;
  for (int64_t k = 0; k < count; ++k) {
    const std::string text = cat(pattern.substr(0, mark), k, pattern.substr(mark + 2));
    const auto at = std::find_if(special.begin(), special.end(),
                                 [&](const SpecialToken& token) { return token.text == text; });
    if (at == special.end()) break;
    out.push_back(at->id);
  }
  MT_USER_CHECK(
      !out.empty(), ErrorClass::config,
      cat("dataset.sentinel: the tokenizer ", tokenizer.name(), " has no special token '",
          printable(cat(pattern.substr(0, mark), 0, pattern.substr(mark + 2)), 60), "'"),
      "set its name for sentinels, add sentinels (tokenizer.extra_ids=100, if it has that "
      "setting), or leave dataset.sentinel empty for the last ids of the vocabulary");
  return out;
}

std::vector<int32_t> last_ids(const Tokenizer& tokenizer, int64_t count) {
  const int64_t vocab = tokenizer.vocab_size();
  MT_USER_CHECK(
      count < vocab, ErrorClass::config,
      cat("dataset.sentinels: ", count, " of a vocabulary of ", vocab, " leave no id for text"),
      "use fewer");
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = static_cast<int32_t>(vocab - 1) - static_cast<int32_t>(k);
  return out;
}

class T5Dataset final : public Dataset {
 public:
  T5Dataset(const T5Config& config, DatasetContext& context)
      : config_(config),
        context_(context),
        text_tokens_(text_tokens(config, context)),
        corruption_(corruption(config, context, text_tokens_)),
        data_(config.data, context,
              {.dataset = "t5",
               .tokens = text_tokens_,
               .extra_tokens = 0,
               .source = [this](auto file, GptIndex index) {
                 return std::make_unique<GptSource>(
                     std::move(file), std::move(index),
                     GptSourceConfig{.seq_length = text_tokens_,
                                     .vocab_size = context_.tokenizer->vocab_size(),
                                     .extra_tokens = 0});
               }}) {
    if (!context.log_summary) return;
    const SpanLengths lengths = span_lengths(text_tokens_, config.shares);
    log_info("t5: samples of ", text_tokens_, " tokens, ", lengths.removed_tokens,
             " of them removed in ", lengths.spans, " spans: ", lengths.inputs,
             " positions of text and ", lengths.targets, " of spans");
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    return std::make_unique<SpanSource>(
        data_.split(which, num_samples),
        SpanCorruption(corruption_, text_tokens_, context_.seed,
                       cat("t5.spans.", mtrain::name(which))),
        cat("the ", mtrain::name(which), " split of ",
            config_.data.path.empty() ? "dataset.paths" : config_.data.path),
        config_.loss == "all");
  }

  std::string identity() const override { return identity_until(INT64_MAX); }

  std::string identity_until(int64_t consumed) const override {
    std::string marks = cat(corruption_.end);
    for (int32_t id : used_sentinels()) marks += cat(",", id);
    return cat("{\"dataset\":\"t5\",", data_.identity(), ",\"seq_length\":", context_.seq_length,
               ",\"mask_probability\":", shortest(config_.shares.mask_probability),
               ",\"mean_span\":", config_.shares.mean_span, ",\"marks\":\"", sha256(marks),
               "\",\"closing_sentinel\":", config_.shares.closing_sentinel ? "true" : "false",
               ",\"loss\":\"", config_.loss, "\"", data_.order_identity(consumed), "}");
  }

 private:
  static int64_t text_tokens(const T5Config& config, const DatasetContext& context) {
    const int64_t tokens = longest_text(context.seq_length + 1, config.shares);
    MT_USER_CHECK(
        tokens > 0, ErrorClass::config,
        cat("model.seq_length ", context.seq_length, " has no room for a text with a removed span"),
        "raise model.seq_length");
    return tokens;
  }

  static int64_t sentinels_needed(const SpanShares& shares, int64_t tokens) {
    return span_lengths(tokens, shares).spans + (shares.closing_sentinel ? 1 : 0);
  }

  static SpanCorruptionConfig corruption(const T5Config& config, const DatasetContext& context,
                                         int64_t tokens) {
    MT_USER_CHECK(context.tokenizer, ErrorClass::config,
                  "dataset t5 needs a tokenizer, for its sentinels", "set tokenizer.type");
    const Tokenizer& tokenizer = *context.tokenizer;
    SpanCorruptionConfig out{
        .shares = config.shares,
        .sentinels = config.sentinel.empty()
                         ? last_ids(tokenizer, config.sentinels)
                         : named_sentinels(tokenizer, config.sentinel, config.sentinels)};
    const int64_t needed = sentinels_needed(config.shares, tokens);
    const auto found = static_cast<int64_t>(out.sentinels.size());
    MT_USER_CHECK(
        needed <= found, ErrorClass::config,
        cat("dataset.sentinels: a sample of model.seq_length ", context.seq_length, " needs ",
            needed, " sentinels, but there are ", found,
            found < config.sentinels ? " in the tokenizer" : ""),
        cat(found < config.sentinels ? "choose a tokenizer with more of them"
                                     : "raise dataset.sentinels",
            ", raise dataset.mean_span, or lower dataset.mask_probability or model.seq_length"));
    MT_USER_CHECK(!config.end_token.empty() || tokenizer.eod(), ErrorClass::config,
                  "dataset.end_token is not set, and the tokenizer has no end-of-document token",
                  "name one of its special tokens");
    out.end = config.end_token.empty()
                  ? *tokenizer.eod()
                  : special_token_id(tokenizer, config.end_token, "dataset.end_token");
    for (int32_t taken : {out.end, tokenizer.eod().value_or(out.end)})
      MT_USER_CHECK(
          std::find(out.sentinels.begin(), out.sentinels.end(), taken) == out.sentinels.end(),
          ErrorClass::config,
          cat("dataset.sentinel: id ", taken, " is both a sentinel and the end token"),
          "name special tokens without another function, such as <extra_id_{}>");
    return out;
  }

  std::span<const int32_t> used_sentinels() const {
    return std::span(corruption_.sentinels)
        .first(static_cast<size_t>(sentinels_needed(config_.shares, text_tokens_)));
  }

  const T5Config config_;
  const DatasetContext context_;
  const int64_t text_tokens_;
  const SpanCorruptionConfig corruption_;
  const PreparedData data_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("t5", "span corruption: spans are removed from the text and predicted after it") {
  using namespace mtrain;
  registry.add<Dataset, T5Dataset, T5Config>(
      "t5", "span corruption: spans are removed from the text and predicted after it");
}
