// Generator: continues a prompt, token by token. Refers to a session with loaded parameters, which
// must outlive it. For the session's thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

/// Throws Error(config) for a recipe whose model does not predict the next token, so it cannot
/// continue a text.
MT_API void require_next_token_model(const Recipe& recipe, PluginHost& plugins);

class MT_API Generator {
 public:
  explicit Generator(Session& session) : session_(session) {}
  /// Returns the ids that follow the prompt. Ends early at the end-of-document token or at one of
  /// options.stop; neither is returned. An empty prompt is replaced by the end-of-document token. A
  /// text that is longer than model.seq_length is continued from its last seq_length tokens; logs a
  /// warning if the prompt itself is longer. Calls `on_token` with each new id.
  std::vector<int32_t> generate(std::vector<int32_t> prompt, const SamplingOptions& options,
                                const std::function<void(int32_t)>& on_token = {});
  /// Logits [tokens, valid vocabulary] of a text, in float on the host.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  Session& session_;
};

}  // namespace mtrain
