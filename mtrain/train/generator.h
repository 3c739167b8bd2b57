// Generator: continues a prompt, or answers it with an encoder and a decoder, token by token.
// Refers to a session with loaded parameters, which must outlive it. For the session's thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
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

class MT_API Generator {
 public:
  explicit Generator(Session& session);
  /// True for a model with an encoder and a decoder, which does not continue the prompt: the
  /// encoder reads it, and the decoder's text is the answer.
  bool answers() const { return answer_.has_value(); }
  /// Returns the ids that follow the prompt. Ends early at the end-of-document token or at one of
  /// options.stop; neither is returned. An empty prompt is replaced by the end-of-document token. A
  /// text that is longer than model.seq_length is continued from its last seq_length tokens; logs a
  /// warning if the prompt itself is longer. Calls `on_token` with each new id.
  ///
  /// A model with an encoder: the encoder reads the prompt and the end token after it; if the
  /// prompt is longer than the encoder's positions, it is truncated with a warning. The decoder
  /// begins with the start token, and its text has at most model.decoder_seq_length tokens.
  std::vector<int32_t> generate(std::vector<int32_t> prompt, const SamplingOptions& options,
                                const std::function<void(int32_t)>& on_token = {});
  /// Logits [tokens, valid vocabulary] of a text, in float on the host. REQUIRES: not answers().
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  /// The sample of an encoder and a decoder, and the tokens around their texts.
  struct Answer {
    size_t encoder = 0, decoder = 0;  // positions
    int32_t start = 0, end = 0;
  };
  std::vector<float> logits_of(const MicroBatch& batch);
  std::vector<float> answer_logits(std::span<const int32_t> prompt,
                                   std::span<const int32_t> answer);
  std::vector<int32_t> generate(const std::function<std::span<const float>(size_t)>& logits_at,
                                int64_t most, std::optional<int32_t> end,
                                const SamplingOptions& options,
                                const std::function<void(int32_t)>& on_token);
  std::vector<int32_t> answer(std::vector<int32_t> prompt, const SamplingOptions& options,
                              const std::function<void(int32_t)>& on_token);
  Session& session_;
  std::optional<Answer> answer_;
};

}  // namespace mtrain
