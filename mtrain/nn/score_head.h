// ScoreHead: the head of a reward model or classifier, in place of that over the vocabulary: a few
// scores for each token, of which an objective over scores reads those at the ends of sequences
// (mtrain/optim/objective.h). Hugging Face: *ForSequenceClassification. Adds its parameter in the
// constructor; for the rank's own thread. Dimensions: T tokens, D embed, L labels.
#pragma once
#include "mtrain/config/fields.h"
#include "mtrain/nn/layers.h"

namespace mtrain {

/// The setting of decoders that chooses this head, below `model`, and its parameter.
inline constexpr const char* kLabelsSetting = "labels";
inline constexpr const char* kScoreWeight = "score.weight";

/// The setting `labels` of a decoder; 0: the head is over the vocabulary.
MT_API void bind_labels(Fields& f, int64_t& labels);

class MT_API ScoreHead {
 public:
  /// `model`: the scope of the model, below which the parameter is kScoreWeight [L,D]. It is not
  /// sharded over tp.
  ScoreHead(const Scope& model, const Dim& embed, int64_t labels, float init_std);
  /// Scores [T,L] in float, equal on all ranks of tp, of the tokens that this rank has of cp.
  /// Products of bf16 and fp16 are added up in float and not rounded.
  Tensor operator()(const Tensor& x_TD) const;

 private:
  const ParallelContext* parallel_;
  Parameter& weight_;
};

}  // namespace mtrain
