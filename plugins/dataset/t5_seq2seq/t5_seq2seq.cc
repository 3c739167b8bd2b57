// The t5_seq2seq dataset: span corruption of prepared text for a model with an encoder and a
// decoder. The first positions of a sample belong to the encoder: the text with a sentinel in place
// of each removed span, the end token. The last ones belong to the decoder: each span after its
// sentinel, the end token, shifted by one position after a start token.
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

struct Seq2SeqConfig {
  PreparedSettings data;
  SpanSettings spans;
  int64_t decoder_seq_length = 114;
  std::string start_token;

  void bind(Fields& f) {
    f.objective(Dataset::kSequenceToSequence);
    data.bind(f);
    spans.bind(f);
    f("decoder_seq_length", decoder_seq_length,
      "number of positions at the end of a sample that belong to the decoder: that of the model")
        .min(1)
        .unit("tokens")
        .example("${model.decoder_seq_length}");
    f("start_token", start_token,
      "the special token before the decoder's targets; empty: that of the model "
      "(model.decoder_start_token), else the end token")
        .example("<pad>");
  }
};

/// The positions of a sample, and the marks around the text.
struct Seq2SeqForm {
  size_t encoder = 0, decoder = 0;  // positions of each
  int32_t start = 0, end = 0;
};

/// Pairs of a text without its spans and these spans. The removed spans of item i are a function of
/// the seed and i, so a text that is used again in a later epoch has other spans.
class PairSource final : public SampleSource {
 public:
  PairSource(std::unique_ptr<SampleSource> text, SpanCorruption corruption, std::string what,
             const Seq2SeqForm& form)
      : text_(std::move(text)),
        corruption_(std::move(corruption)),
        what_(std::move(what)),
        form_(form) {}

  int64_t size() const override { return text_->size(); }
  std::string order() const override { return text_->order(); }

  void get(int64_t index, Sample& out) const override {
    const std::vector<int32_t> ids = corrupted_ids(*text_, corruption_, index, what_);
    const auto inputs = static_cast<size_t>(corruption_.lengths().inputs);
    lay(std::span<const int32_t>(ids).first(inputs), std::span<const int32_t>(ids).subspan(inputs),
        out);
  }

 private:
  /// Positions without a token of either hold the end token. Those of the encoder are a sequence of
  /// their own, which nothing attends to.
  void lay(std::span<const int32_t> inputs, std::span<const int32_t> targets, Sample& out) const {
    MT_CHECK(inputs.size() <= form_.encoder && targets.size() <= form_.decoder, inputs.size(),
             " and ", targets.size(), " tokens in ", form_.encoder, " and ", form_.decoder);
    std::fill(out.tokens.begin(), out.tokens.end(), form_.end);
    std::fill(out.targets.begin(), out.targets.end(), kIgnoredTarget);
    std::copy(inputs.begin(), inputs.end(), out.tokens.begin());
    const std::span<int32_t> fed = out.tokens.subspan(form_.encoder);
    fed[0] = form_.start;
    std::copy(targets.begin(), targets.end() - 1, fed.begin() + 1);
    std::copy(targets.begin(), targets.end(),
              out.targets.begin() + static_cast<std::ptrdiff_t>(form_.encoder));
    out.starts.assign(1, 0);
    if (inputs.size() < form_.encoder) out.starts.push_back(static_cast<int32_t>(inputs.size()));
    out.starts.push_back(static_cast<int32_t>(form_.encoder));
    for (size_t s = 0; s < out.starts.size(); ++s) {
      const auto begin = out.positions.begin() + out.starts[s];
      std::iota(begin,
                s + 1 < out.starts.size() ? out.positions.begin() + out.starts[s + 1]
                                          : out.positions.end(),
                0);
    }
    out.padding = static_cast<int64_t>(form_.decoder - targets.size());
  }

  std::unique_ptr<SampleSource> text_;
  SpanCorruption corruption_;
  std::string what_;
  Seq2SeqForm form_;
};

class Seq2SeqDataset final : public Dataset {
 public:
  Seq2SeqDataset(const Seq2SeqConfig& config, DatasetContext& context)
      : config_(config),
        context_(context),
        text_tokens_(text_tokens(config, context)),
        corruption_(config.spans.corruption(context.tokenizer, text_tokens_, context.seq_length)),
        form_(form(config, context, corruption_)),
        data_(config.data, context,
              {.dataset = "t5_seq2seq",
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
    log_info("t5_seq2seq: samples of ", text_tokens_, " tokens, ", lengths.removed_tokens,
             " of them removed in ", lengths.spans, " spans: ", lengths.inputs,
             " of the encoder's ", form_.encoder, " positions and ", lengths.targets,
             " of the decoder's ", form_.decoder);
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    return std::make_unique<PairSource>(
        data_.split(which, num_samples),
        SpanCorruption(corruption_, text_tokens_, context_.seed,
                       cat("t5.spans.", mtrain::name(which))),
        cat("the ", mtrain::name(which), " split of ",
            config_.data.path.empty() ? "dataset.paths" : config_.data.path),
        form_);
  }

  std::string_view objective() const override { return kSequenceToSequence; }
  std::string identity() const override { return identity_until(INT64_MAX); }

  std::string identity_until(int64_t consumed) const override {
    const SpanShares& shares = config_.spans.shares;
    return cat("{\"dataset\":\"t5_seq2seq\",", data_.identity(),
               ",\"seq_length\":", context_.seq_length,
               ",\"decoder_seq_length\":", config_.decoder_seq_length,
               ",\"mask_probability\":", shortest(shares.mask_probability),
               ",\"mean_span\":", shares.mean_span, ",\"marks\":\"",
               special_tokens_hash(corruption_, config_.spans.needed(text_tokens_)),
               "\",\"start\":", form_.start,
               ",\"closing_sentinel\":", shares.closing_sentinel ? "true" : "false",
               data_.order_identity(consumed), "}");
  }

 private:
  /// The longest text that fits both parts.
  static int64_t text_tokens(const Seq2SeqConfig& config, const DatasetContext& context) {
    const int64_t decoder = config.decoder_seq_length, encoder = context.seq_length - decoder;
    int64_t tokens = longest_text(context.seq_length, config.spans.shares);
    auto fits = [&](int64_t n) {
      const SpanLengths lengths = span_lengths(n, config.spans.shares);
      return lengths.inputs <= encoder && lengths.targets <= decoder;
    };
    while (tokens >= 2 && !fits(tokens)) --tokens;
    MT_USER_CHECK(tokens >= 2, ErrorClass::config,
                  cat("no text with a removed span fits ", encoder,
                      " positions of the encoder and ", decoder, " of the decoder"),
                  "model.seq_length counts both; raise it or change dataset.decoder_seq_length");
    return tokens;
  }

  static Seq2SeqForm form(const Seq2SeqConfig& config, const DatasetContext& context,
                          const SpanCorruptionConfig& corruption) {
    return {.encoder = static_cast<size_t>(context.seq_length - config.decoder_seq_length),
            .decoder = static_cast<size_t>(config.decoder_seq_length),
            .start = config.start_token.empty()
                         ? context.decoder_start.value_or(corruption.end)
                         : special_token_id(*context.tokenizer, config.start_token,
                                            "dataset.start_token"),
            .end = corruption.end};
  }

  const Seq2SeqConfig config_;
  const DatasetContext context_;
  const int64_t text_tokens_;
  const SpanCorruptionConfig corruption_;
  const Seq2SeqForm form_;
  const PreparedData data_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("t5_seq2seq", "span corruption for an encoder and a decoder") {
  using namespace mtrain;
  registry.add<Dataset, Seq2SeqDataset, Seq2SeqConfig>(
      "t5_seq2seq", "span corruption for an encoder and a decoder: T5's pretraining");
}
