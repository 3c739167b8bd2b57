// The mock dataset: endless synthetic text that a model can learn, without files. Each token has
// four successors, which the seed fixes, with probabilities 1/2, 1/4, 1/8 and 1/8: a trained model
// reaches a loss of 1.75 ln 2 = 1.213 nats, and an untrained one starts near ln(vocabulary). Every
// sample is a pure function of (seed, split, index).
#include <algorithm>
#include <array>
#include <bit>

#include "mtrain/base/error.h"
#include "mtrain/base/rng.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

constexpr int64_t kEndless = int64_t{1} << 62;
constexpr int64_t kBitsPerToken = 3;
constexpr int64_t kTokensPerDraw = 40;  // ten draws of three bits from each of four words

struct MockConfig {
  int64_t vocab_size = 0, epoch_samples = 1024, answers = 0;
  void bind(Fields& f) {
    f.objective(Fields::kAnyObjective);  // its targets are next tokens, which is trivial for a
                                         // model that sees them: only to try such a model
    f("vocab_size", vocab_size,
      "token ids are below this; 0: the size of the tokenizer's vocabulary")
        .min(0)
        .max(1 << 24)
        .resume(ResumeClass::data);
    f("epoch_samples", epoch_samples, "number of samples per epoch")
        .min(1)
        .resume(ResumeClass::safe);
    f("answers", answers,
      "answers per sample, for objectives over answers; 2: a pair, whose rejected answer is "
      "random, "
      "1: one answer, every second one random and labeled bad, 0: plain text or, for a model of "
      "scores, one sequence with a random class or with a class of each token that depends on the "
      "token")
        .min(0)
        .max(2)
        .resume(ResumeClass::data);
  }
};

/// The table of the four successors of every token.
class Language {
 public:
  Language(int64_t vocab_size, uint64_t seed) : next_(static_cast<size_t>(vocab_size)) {
    RngStream random(seed, "mock.language");
    for (size_t token = 0; token < next_.size(); ++token) {
      auto words = random.words(token);
      for (size_t i = 0; i < 4; ++i)  // the high bits of a product: uniform without a division
        next_[token][i] = static_cast<int32_t>((uint64_t{words[i]} * next_.size()) >> 32);
    }
  }
  int64_t vocab_size() const { return static_cast<int64_t>(next_.size()); }
  int32_t after(int32_t token, uint32_t three_bits) const {
    const size_t choice =
        std::min<size_t>(std::countr_zero(three_bits | 8u), 3);  // 0: 1/2, 1: 1/4, 2: 1/8, 3: 1/8
    return next_[static_cast<size_t>(token)][choice];
  }

 private:
  std::vector<std::array<int32_t, 4>> next_;
};

class MockSource final : public SampleSource {
 public:
  MockSource(std::shared_ptr<const Language> language, uint64_t seed, Split which, int64_t size,
             int64_t answers, int64_t epoch, const DatasetContext& context)
      : language_(std::move(language)),
        random_(seed, cat("mock.", mtrain::name(which))),
        size_(size),
        answers_(answers),
        epoch_(epoch),
        labels_(context.labels),
        of_tokens_(context.labels_of_tokens) {}

  int64_t size() const override { return size_; }

  void get(int64_t number, Sample& out) const override {
    // Answers repeat, so that a reference can be computed once for each.
    const int64_t index = answers_ > 0 ? number % epoch_ : number;
    const auto seq = static_cast<int64_t>(out.tokens.size());
    const auto first =
        static_cast<uint64_t>(index) * static_cast<uint64_t>(seq / kTokensPerDraw + 2);
    auto words = random_.words(first);
    auto token = static_cast<int32_t>(
        (uint64_t{words[0]} * static_cast<uint64_t>(language_->vocab_size())) >> 32);
    for (int64_t i = 0; i < seq; ++i) {
      if (i % kTokensPerDraw == 0)
        words = random_.words(first + 1 + static_cast<uint64_t>(i / kTokensPerDraw));
      const auto place = static_cast<size_t>(i % kTokensPerDraw);
      const auto at = static_cast<size_t>(i);
      out.tokens[at] = token;
      token = language_->after(token, (words[place / 10] >> (place % 10 * kBitsPerToken)) & 7u);
      out.targets[at] = token;
      out.positions[at] = static_cast<int32_t>(i);
    }
    out.starts.assign(1, 0);
    if (answers_ > 0) make_answers(index, words[0], out);
    if (labels_ > 0 && of_tokens_)
      make_token_classes(out);
    else if (labels_ > 0)
      make_classes(words[1], out);
  }

 private:
  /// The prompt is the first quarter of a sequence. A bad answer steps through the vocabulary.
  void make_answers(int64_t index, uint32_t draw, Sample& out) const {
    const size_t length = out.tokens.size() / static_cast<size_t>(answers_), prompt = length / 4;
    for (size_t begin = 0; begin < out.tokens.size(); begin += length) {
      const bool bad = answers_ == 2 ? begin > 0 : index % 2 == 1;
      const size_t end =
          begin + 2 * length > out.tokens.size() ? out.tokens.size() : begin + length;
      if (begin > 0) out.starts.push_back(static_cast<int32_t>(begin));
      for (size_t at = begin; at < end; ++at) {
        const size_t place = at - begin;
        if (place <= prompt) out.tokens[at] = out.tokens[place];
        out.positions[at] = static_cast<int32_t>(place);
        if (place < prompt)
          out.targets[at] = kIgnoredTarget;
        else if (bad)
          out.targets[at] = static_cast<int32_t>((draw + 7919 * place) %
                                                 static_cast<size_t>(language_->vocab_size()));
        if (place > prompt) out.tokens[at] = out.targets[at - 1];
      }
      if (end == out.tokens.size()) break;
    }
    out.good = answers_ == 2 || index % 2 == 0;
  }

  /// One target for each sequence, at its last token: of an answer 0, otherwise its class.
  void make_classes(uint32_t draw, Sample& out) const {
    std::fill(out.targets.begin(), out.targets.end(), kIgnoredTarget);
    for (size_t s = 0; s < out.starts.size(); ++s) {
      const size_t end =
          s + 1 < out.starts.size() ? static_cast<size_t>(out.starts[s + 1]) : out.targets.size();
      out.targets[end - 1] =
          answers_ > 0 ? 0 : static_cast<int32_t>(draw % static_cast<uint64_t>(labels_));
    }
  }

  /// Every third token has none, like the rest of a word.
  void make_token_classes(Sample& out) const {
    for (size_t t = 0; t < out.tokens.size(); ++t)
      out.targets[t] = t % 3 == 2 ? kIgnoredTarget : static_cast<int32_t>(out.tokens[t] % labels_);
  }

  std::shared_ptr<const Language> language_;
  RngStream random_;
  int64_t size_, answers_, epoch_, labels_;
  bool of_tokens_;
};

class MockDataset final : public Dataset {
 public:
  MockDataset(const MockConfig& config, DatasetContext& context)
      : config_(config), context_(context) {
    int64_t vocab_size = config.vocab_size   ? config.vocab_size
                         : context.tokenizer ? context.tokenizer->vocab_size()
                                             : 256;
    MT_USER_CHECK(!context.tokenizer || vocab_size <= context.tokenizer->vocab_size(),
                  ErrorClass::config,
                  cat("dataset.vocab_size ", vocab_size, " is above the tokenizer's ",
                      context.tokenizer->vocab_size()),
                  "leave dataset.vocab_size out");
    MT_USER_CHECK(config.answers == 0 || context.seq_length >= 4 * config.answers,
                  ErrorClass::config,
                  cat("samples of ", context.seq_length, " tokens have no room for ",
                      config.answers, " answers"),
                  cat("set model.seq_length to at least ", 4 * config.answers));
    language_ = std::make_shared<Language>(vocab_size, context.seed);
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    return std::make_unique<MockSource>(language_, context_.seed, which,
                                        num_samples == kOneEpoch ? config_.epoch_samples
                                        : config_.answers > 0    ? num_samples
                                                                 : kEndless,
                                        config_.answers, config_.epoch_samples, context_);
  }

  std::string identity() const override {
    return cat("{\"dataset\":\"mock\",\"vocab_size\":", language_->vocab_size(),
               config_.answers > 0 ? cat(",\"answers\":", config_.answers,
                                         ",\"epoch_samples\":", config_.epoch_samples)
                                   : "",
               context_.labels > 0 ? cat(",\"labels\":", context_.labels) : "",
               context_.labels_of_tokens ? ",\"labels_of\":\"token\"" : "",
               ",\"seed\":", context_.seed, ",\"seq_length\":", context_.seq_length, "}");
  }

 private:
  const MockConfig config_;
  const DatasetContext context_;
  std::shared_ptr<const Language> language_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("mock", "endless synthetic text that a model can learn; needs no files") {
  using namespace mtrain;
  registry.add<Dataset, MockDataset, MockConfig>(
      "mock", "endless synthetic text that a model can learn; needs no files");
}
