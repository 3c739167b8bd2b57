// The t5 dataset: span corruption of prepared text for a model that predicts the next token. A
// sample is one sequence: the text with a sentinel in place of each removed span, the end token,
// each span after its sentinel, the end token.
#include <algorithm>
#include <memory>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/data/span_settings.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct T5Config {
  PreparedSettings data;
  SpanSettings spans;
  std::string loss = "targets";

  void bind(Fields& f) {
    data.bind(f);
    spans.bind(f);
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
    const std::vector<int32_t> ids = corrupted_ids(*text_, corruption_, index, what_);
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

class T5Dataset final : public Dataset {
 public:
  T5Dataset(const T5Config& config, DatasetContext& context)
      : config_(config),
        context_(context),
        text_tokens_(text_tokens(config, context)),
        corruption_(config.spans.corruption(context.tokenizer, text_tokens_, context.seq_length)),
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
    const SpanLengths lengths = span_lengths(text_tokens_, config.spans.shares);
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
    return cat("{\"dataset\":\"t5\",", data_.identity(), ",\"seq_length\":", context_.seq_length,
               ",\"mask_probability\":", shortest(config_.spans.shares.mask_probability),
               ",\"mean_span\":", config_.spans.shares.mean_span, ",\"marks\":\"",
               special_tokens_hash(corruption_, config_.spans.needed(text_tokens_)),
               "\",\"closing_sentinel\":", config_.spans.shares.closing_sentinel ? "true" : "false",
               ",\"loss\":\"", config_.loss, "\"", data_.order_identity(consumed), "}");
  }

 private:
  static int64_t text_tokens(const T5Config& config, const DatasetContext& context) {
    const int64_t tokens = longest_text(context.seq_length + 1, config.spans.shares);
    MT_USER_CHECK(
        tokens > 0, ErrorClass::config,
        cat("model.seq_length ", context.seq_length, " has no room for a text with a removed span"),
        "raise model.seq_length");
    return tokens;
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
