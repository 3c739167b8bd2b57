// Texts that are generated together: each is read alone up to its first new token, and the further
// tokens of all of them are computed in one forward. A CPU computes each row of such a forward as
// if it were alone, so the texts do not depend on each other.
#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "mtrain/base/rng.h"
#include "mtrain/train/generator.h"
#include "mtrain/train/text_batch.h"

namespace mtrain {

struct Generator::Running {
  size_t number = 0;          // in the order of the prompts
  std::vector<int32_t> text;  // the prompt and what was generated
  SamplingOptions sampling;
  RngStream random;
  GeneratedTokens made = {};
};

/// The texts that are being generated, one for each text of the cache.
class Generator::Together {
 public:
  Together(Generator& generator, const std::function<void(GeneratedTokens)>& done)
      : generator_(generator),
        done_(done),
        window_(static_cast<size_t>(generator.most_read())),
        cache_(generator.most_read(), kTextsAtOnce),
        texts_(kTextsAtOnce),
        end_(generator.session_.tokenizer->eod()) {}

  /// Not if many results wait for that of an earlier text: they would be lost with the process.
  bool has_room() const {
    return running_ < texts_.size() && begun_ - delivered_ < 4 * texts_.size();
  }
  bool empty() const { return running_ == 0; }
  void begin(TextRequest request);
  /// The next token of each text.
  void step();

 private:
  void take(size_t place, const std::vector<float>& logits);
  void finish_alone(size_t place);
  void deliver(Running text);

  Generator& generator_;
  const std::function<void(GeneratedTokens)>& done_;
  size_t window_;
  KeyValueCache cache_;
  std::vector<std::optional<Running>> texts_;
  std::optional<int32_t> end_;
  std::map<size_t, GeneratedTokens> waiting_;  // for results of earlier prompts
  size_t running_ = 0, begun_ = 0, delivered_ = 0;
};

void Generator::Together::begin(TextRequest request) {
  const auto free = std::ranges::find_if(texts_, [](const auto& one) { return !one.has_value(); });
  const auto place = static_cast<size_t>(free - texts_.begin());
  const uint64_t seed = request.sampling.seed;
  *free = Running{.number = begun_++,
                  .text = generator_.accepted_prompt(std::move(request.prompt)),
                  .sampling = std::move(request.sampling),
                  .random = RngStream(seed, "generate")};
  ++running_;
  const std::vector<int32_t>& text = (*free)->text;
  if (text.size() > window_) return finish_alone(place);
  cache_.keep(0, static_cast<int64_t>(place));
  cache_.read({{.text = static_cast<int64_t>(place), .tokens = std::ssize(text)}});
  const std::vector<float> logits =
      generator_.logits_of(batch_of(text), std::ssize(text) - 1, &cache_);
  cache_.advance();
  take(place, logits);
  finish_alone(place);
}

void Generator::Together::step() {
  MicroBatch batch;
  std::vector<KeyValueCache::Part> parts;
  for (size_t place = 0; place < texts_.size(); ++place) {
    if (!texts_[place]) continue;
    const std::vector<int32_t>& text = texts_[place]->text;
    append_text(batch, std::span(text).last(1), std::ssize(text) - 1);
    parts.push_back({.text = static_cast<int64_t>(place), .tokens = 1});
  }
  cache_.read(parts);
  const std::vector<float> all = generator_.logits_of(batch, -1, &cache_);
  cache_.advance();
  const auto width = static_cast<ptrdiff_t>(all.size() / parts.size());
  auto row = all.begin();
  for (const KeyValueCache::Part& part : parts) {
    take(static_cast<size_t>(part.text), {row, row + width});
    finish_alone(static_cast<size_t>(part.text));
    row += width;
  }
}

/// Adds the token that follows these logits to a text, which may end it.
void Generator::Together::take(size_t place, const std::vector<float>& logits) {
  Running& text = *texts_[place];
  const int32_t id =
      generator_.next_id(logits, text.sampling, text.random.uniform(text.made.ids.size()), false);
  text.made.ended = ends_text(id, end_, text.sampling);
  if (!text.made.ended) {
    text.made.ids.push_back(id);
    text.text.push_back(id);
  }
  if (!text.made.ended && std::ssize(text.made.ids) < text.sampling.max_tokens) return;
  --running_;
  deliver(*std::exchange(texts_[place], std::nullopt));
}

/// The rest of a text that is longer than the model reads at once: its tokens change their
/// positions with each further token.
void Generator::Together::finish_alone(size_t place) {
  while (texts_[place] && texts_[place]->text.size() > window_)
    take(place, generator_.logits_of(batch_of(std::span(texts_[place]->text).last(window_)),
                                     static_cast<int64_t>(window_) - 1));
}

void Generator::Together::deliver(Running text) {
  waiting_[text.number] = std::move(text.made);
  for (; !waiting_.empty() && waiting_.begin()->first == delivered_; ++delivered_)
    done_(std::move(waiting_.extract(waiting_.begin()).mapped()));
}

void Generator::generate_all(const std::function<std::optional<TextRequest>()>& next,
                             const std::function<void(GeneratedTokens)>& done) {
  if (!cache_) {
    while (std::optional<TextRequest> request = next())
      done(generate(std::move(request->prompt), request->sampling));
    return;
  }
  Together texts(*this, done);
  std::exception_ptr fault;  // of a prompt: those before it get their results
  const auto following = [&]() -> std::optional<TextRequest> {
    try {
      return next();
    } catch (...) {
      fault = std::current_exception();
      return std::nullopt;
    }
  };
  for (bool more = true; more || !texts.empty();) {
    while (more && texts.has_room())
      if (std::optional<TextRequest> request = following())
        texts.begin(std::move(*request));
      else
        more = false;
    if (!texts.empty()) texts.step();
  }
  if (fault) std::rethrow_exception(fault);
}

}  // namespace mtrain
