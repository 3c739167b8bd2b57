// ScoreHead: the head of a reward model or classifier, in place of that over the vocabulary: a few
// scores for each token. An objective over scores reads those at the ends of sequences, or those of
// all tokens that have a class (mtrain/optim/objective.h). Hugging Face:
// *ForSequenceClassification, and with a bias *ForTokenClassification. Adds its parameters in the
// constructor; for the rank's own thread. Dimensions: T tokens, D embed, L labels.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/layers.h"

namespace mtrain {

/// The settings of models that choose this head, below `model`, and its parameters.
inline constexpr const char* kLabelsSetting = "labels";
inline constexpr const char* kLabelsOfSetting = "labels_of";
inline constexpr const char* kScoreWeight = "score.weight";
inline constexpr const char* kScoreBias = "score.bias";
/// Whether a parameter is one of this head.
inline bool is_of_score_head(std::string_view parameter) {
  return parameter == kScoreWeight || parameter == kScoreBias;
}

/// The settings `labels` and `labels_of` of a model. labels=0: the head is over the vocabulary;
/// labels_of=token: each token has a class, and the head a bias.
MT_API void bind_labels(Fields& f, int64_t& labels, std::string& of,
                        const std::vector<std::string>& choices = {"sequence", "token"});

class MT_API ScoreHead {
 public:
  /// `model`: the scope of the model, below which the parameters are kScoreWeight [L,D] and, with
  /// labels_of=token, kScoreBias [L]. They are not sharded over tp.
  ScoreHead(const Scope& model, const Dim& embed, int64_t labels, const std::string& labels_of,
            float init_std);
  /// Scores [T,L] in float, for the tokens that this rank of cp holds; equal on all ranks of tp.
  /// Products of bf16 and fp16 are accumulated in float, and the sums are not rounded.
  Tensor operator()(const Tensor& x_TD) const;

 private:
  const ParallelContext* parallel_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;  // null: none
};

}  // namespace mtrain
