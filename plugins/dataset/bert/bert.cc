// The bert dataset: masked language modeling over prepared token files. A sample is a piece of the
// stream of documents between a start and an end token. The masked positions are drawn again each
// time a piece is used.
#include <algorithm>
#include <memory>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/data/masking.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct BertConfig {
  PreparedSettings data;
  double mask_probability = 0.15, mask_share = 0.8, random_share = 0.1;
  bool whole_words = false;
  std::string mask_token = "[MASK]", start_token = "[CLS]", end_token = "[SEP]";

  void bind(Fields& f) {
    f.objective(Dataset::kMaskedToken);
    data.bind(f);
    f("mask_probability", mask_probability, "fraction of tokens to predict")
        .exclusive_min(0)
        .exclusive_max(1)
        .renamed_from({"mask_prob", "mlm_probability"});
    f("mask_share", mask_share, "fraction of the predicted tokens that are replaced by mask_token")
        .min(0)
        .max(1);
    f("random_share", random_share,
      "fraction of the predicted tokens that are replaced by a random token; the rest are "
      "unchanged")
        .min(0)
        .max(1);
    f("whole_words", whole_words,
      "predict either all pieces of a word or none; for WordPiece tokenizers, whose continuation "
      "pieces begin with ##")
        .renamed_from({"whole_word_masking"});
    f("mask_token", mask_token, "the special token that replaces masked tokens").example("<mask>");
    f("start_token", start_token, "the special token at the start of a sample; empty: none")
        .example("<s>");
    f("end_token", end_token, "the special token at the end of a sample; empty: none")
        .example("</s>");
  }
};

/// Texts with a start and an end token, masked. The draws depend on the position in the run, so a
/// text that is used in another epoch is masked differently.
class MaskedSource final : public SampleSource {
 public:
  MaskedSource(std::unique_ptr<SampleSource> texts, Masking masking, std::optional<int32_t> start,
               std::optional<int32_t> end)
      : texts_(std::move(texts)), masking_(std::move(masking)), start_(start), end_(end) {}

  int64_t size() const override { return texts_->size(); }
  std::string order() const override { return texts_->order(); }

  void get(int64_t index, Sample& out) const override {
    const size_t begin = start_ ? 1 : 0, count = out.tokens.size() - begin - (end_ ? 1 : 0);
    Sample text{out.tokens.subspan(begin, count), out.targets.subspan(begin, count),
                out.positions.subspan(begin, count), std::move(out.starts)};
    texts_->get(index, text);
    if (start_) out.tokens.front() = *start_;
    if (end_) out.tokens.back() = *end_;
    std::iota(out.positions.begin(), out.positions.end(), 0);
    out.starts = std::move(text.starts);
    out.starts.assign(1, 0);
    masking_.apply(static_cast<uint64_t>(index), out.tokens, out.targets);
  }

 private:
  std::unique_ptr<SampleSource> texts_;
  Masking masking_;
  std::optional<int32_t> start_, end_;
};

class BertDataset final : public Dataset {
 public:
  BertDataset(const BertConfig& config, DatasetContext& context)
      : config_(config),
        context_(context),
        start_(special("start_token", config.start_token)),
        end_(special("end_token", config.end_token)),
        masking_(masking()),
        data_(config.data, context,
              {.dataset = "bert",
               .tokens = text_length(),
               .extra_tokens = 0,
               .source = [length = text_length(), vocab_size = context.tokenizer->vocab_size()](
                             auto file, GptIndex index) {
                 return std::make_unique<GptSource>(
                     std::move(file), std::move(index),
                     GptSourceConfig{
                         .seq_length = length, .vocab_size = vocab_size, .extra_tokens = 0});
               }}) {}

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    return std::make_unique<MaskedSource>(
        data_.split(which, num_samples),
        Masking(masking_, context_.seed, cat("bert.mask.", name(which))), start_, end_);
  }

  std::string_view objective() const override { return kMaskedToken; }

  std::string identity() const override { return identity_until(INT64_MAX); }

  std::string identity_until(int64_t consumed) const override {
    auto id = [](std::optional<int32_t> token) {
      return token ? std::to_string(*token) : std::string("null");
    };
    return cat("{\"dataset\":\"bert\",", data_.identity(), ",\"seq_length\":", context_.seq_length,
               ",\"masking\":[", shortest(config_.mask_probability), ",",
               shortest(config_.mask_share), ",", shortest(config_.random_share), ",",
               config_.whole_words ? "true" : "false", "],\"tokens\":[", id(masking_.mask), ",",
               id(start_), ",", id(end_), "]", data_.order_identity(consumed), "}");
  }

 private:
  std::optional<int32_t> special(const char* setting, const std::string& text) const {
    MT_USER_CHECK(context_.tokenizer, ErrorClass::config, "dataset.type=bert needs a tokenizer",
                  "set tokenizer.type");
    if (text.empty()) return std::nullopt;
    return special_token_id(*context_.tokenizer, text, cat("dataset.", setting));
  }

  int64_t text_length() const {
    const int64_t around = (start_ ? 1 : 0) + (end_ ? 1 : 0);
    MT_USER_CHECK(context_.seq_length > around, ErrorClass::config,
                  cat("model.seq_length=", context_.seq_length,
                      " leaves no room for text next to dataset.start_token and end_token"),
                  "choose a longer model.seq_length");
    return context_.seq_length - around;
  }

  MaskingConfig masking() const {
    MT_USER_CHECK(config_.mask_share + config_.random_share <= 1 + 1e-9, ErrorClass::config,
                  cat("dataset.mask_share (", config_.mask_share, ") and dataset.random_share (",
                      config_.random_share, ") add up to more than 1"),
                  "they are fractions of the predicted tokens: lower one of them");
    auto mask = special("mask_token", config_.mask_token);
    MT_USER_CHECK(mask, ErrorClass::config, "dataset.mask_token is empty",
                  "name the special token that replaces masked tokens");
    MaskingConfig out{.probability = config_.mask_probability,
                      .mask_share = config_.mask_share,
                      .random_share = config_.random_share,
                      .whole_words = config_.whole_words,
                      .mask = *mask,
                      .kinds = token_kinds(*context_.tokenizer)};
    auto count = [&](TokenKind kind) {
      return std::count(out.kinds.begin(), out.kinds.end(), kind);
    };
    // Other tokenizers also have a few such pieces, from headings in Markdown.
    const auto continuations = count(TokenKind::continuation), words = count(TokenKind::ordinary);
    MT_USER_CHECK(!config_.whole_words || continuations * 100 >= words, ErrorClass::config,
                  cat("dataset.whole_words is set, and only ", continuations,
                      " of the tokenizer's ", continuations + words,
                      " tokens begin with ##, which marks continuation pieces in WordPiece"),
                  "choose a WordPiece tokenizer, or turn dataset.whole_words off");
    return out;
  }

  const BertConfig config_;
  const DatasetContext context_;
  const std::optional<int32_t> start_, end_;
  const MaskingConfig masking_;
  const PreparedData data_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("bert", "masked-language-model samples from prepared token files") {
  using namespace mtrain;
  registry.add<Dataset, BertDataset, BertConfig>(
      "bert", "masked-language-model samples from prepared token files");
}
