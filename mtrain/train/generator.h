// Generator: continues a prompt, or answers it with an encoder and a decoder, token by token.
// Refers to a session with loaded parameters, which must outlive it. Changes nothing that training
// reads: no dropout, no gradients, random numbers of its own. For the session's thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/data/loader.h"
#include "mtrain/train/session.h"

namespace mtrain {

struct SamplingOptions {
  int64_t max_tokens = 100;
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // 1: all
  uint64_t seed = 1;
  std::vector<int32_t> stop = {};  // ids that end the text, besides the end of a document
};

/// Picks a token: logits / temperature, restricted to the top_k largest and then to the smallest
/// set with a probability of at least top_p (Holtzman et al. 2020, arXiv:1904.09751). `draw` is
/// uniform in [0, 1).
MT_API int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                            double draw);

/// Throws Error(config) for a recipe whose model is neither a next-token model nor an
/// encoder-decoder model.
MT_API void require_generating_model(const Recipe& recipe, PluginHost& plugins);

/// The text of `ids` after a prompt's ids, including what joins the two, such as a blank.
MT_API std::string continuation(const Tokenizer& tokenizer, std::vector<int32_t> prompt,
                                const std::vector<int32_t>& ids);

/// A generated text. A value.
struct GeneratedTokens {
  std::vector<int32_t> ids;  // without the prompt and the id that ends the text
  bool ended = false;        // by such an id, not by the number of tokens
};

/// A prompt, and how the text that follows it is sampled. A value.
struct TextRequest {
  std::vector<int32_t> prompt;
  SamplingOptions sampling = {};
};

/// Whether this id ends a text: `end`, or one of options.stop.
bool ends_text(int32_t id, std::optional<int32_t> end, const SamplingOptions& options);

/// How ranks compute the logits of one model together. The functions are collective.
struct SharedModel {
  /// Those of the valid ids in a row of a micro-batch; empty on a rank that does not have them.
  /// Empty: Model::forward() of the session.
  std::function<std::vector<float>(const MicroBatch& batch, int64_t row)> logits = {};
  /// The largest value of these ranks. Empty: this rank has the whole model.
  std::function<int32_t(int32_t value)> largest = {};
};

class MT_API Generator {
 public:
  /// `shared`: of ranks that all generate the same texts.
  explicit Generator(Session& session, SharedModel shared = {});
  /// True for a model with an encoder and a decoder, which does not continue the prompt: the
  /// decoder's text is an answer of its own.
  bool answers() const { return answer_.has_value(); }
  /// The most tokens of a prompt that the model reads: of a longer one generate() reads the last
  /// ones, or with an encoder the first ones, and warns.
  int64_t most_read() const;
  /// The ids that follow the prompt, up to the end of a document or a stop id, or to
  /// options.max_tokens. The model reads the last model.seq_length tokens of prompt and text. An
  /// encoder reads the prompt and then the end token; if the prompt is longer than the encoder's
  /// positions, it is truncated with a warning. The decoder begins with the start token, and its
  /// text has at most model.decoder_seq_length tokens. `stop`: called before each token with
  /// those so far; if it returns true, on one of the ranks of a shared model, the text ends there.
  using Stop = std::function<bool(const std::vector<int32_t>& made)>;
  GeneratedTokens generate(std::vector<int32_t> prompt, const SamplingOptions& options,
                           const Stop& stop = {});
  /// generate() of several prompts, up to kTextsAtOnce of them together if the model caches texts:
  /// a forward then reads a token of each. Each result is that of its prompt alone, to the bit on a
  /// CPU. `next`: the next prompt, or nothing after the last one; what it throws is thrown after
  /// the results of the prompts before. `done`: receives the results in the order of the prompts.
  void generate_all(const std::function<std::optional<TextRequest>()>& next,
                    const std::function<void(GeneratedTokens)>& done);
  /// As many rows as the products of a CPU compute one by one, so that a row's bits do not depend
  /// on the others.
  static constexpr int64_t kTextsAtOnce = 8;
  /// Whether the session's model reads each token once (Model::continues_texts()), with a cache of
  /// keys and values. Otherwise the whole text is read again for each further token.
  static bool can_cache(const Session& session);
  bool caches() const { return cache_.has_value(); }
  /// Logits [tokens, valid vocabulary] of a text, in float on the host. REQUIRES: not answers(), no
  /// SharedModel::logits.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  /// The sample of an encoder and a decoder, and the tokens around their texts.
  struct Answer {
    size_t encoder = 0, decoder = 0;  // positions
    int32_t start = 0, end = 0;
  };
  /// Those of a row, or of all rows for -1. `cache`: of the earlier tokens, or null.
  std::vector<float> logits_of(const MicroBatch& batch, int64_t row,
                               KeyValueCache* cache = nullptr);
  /// Those of the token after the text, of which the cached tokens are not read again.
  std::vector<float> logits_after(std::span<const int32_t> text);
  /// The id that follows these logits, or -1 if `stop` ends the text.
  int32_t next_id(const std::vector<float>& logits, const SamplingOptions& options, double draw,
                  bool stop) const;
  /// Those of the token after these of the answer.
  std::vector<float> answer_logits(std::span<const int32_t> prompt,
                                   std::span<const int32_t> answer);
  GeneratedTokens generate(
      const std::function<std::vector<float>(const std::vector<int32_t>& made)>& next_logits,
      int64_t most, std::optional<int32_t> end, const SamplingOptions& options, const Stop& stop);
  /// A text of generate_all().
  struct Running;
  class Together;
  /// The empty prompt begins with the end of a document; a long one is truncated with a warning.
  std::vector<int32_t> accepted_prompt(std::vector<int32_t> prompt) const;
  GeneratedTokens answer(std::vector<int32_t> prompt, const SamplingOptions& options,
                         const Stop& stop);
  Session& session_;
  SharedModel shared_;
  std::optional<Answer> answer_;
  std::optional<KeyValueCache> cache_;
  std::vector<int32_t> cached_;  // the tokens of the cache
};

}  // namespace mtrain
