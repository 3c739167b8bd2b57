// Model: the plugin kind for models. One object is one pipeline stage; it does not depend on ranks,
// devices or the optimizer. The caller owns it and its ParamList, which must outlive it; for the
// rank's own thread.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/nn/key_value_cache.h"
#include "mtrain/nn/model_parts.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

/// The input tokens and targets of a micro-batch at one depth of multi-token prediction.
struct TokensAhead {
  Tensor tokens_T;   // int32, the token `depth` positions later in the sequence; 0: there is none
  Tensor targets_T;  // int32, the target of that token; -1: there is none, or it is ignored
  int64_t num_targets = 0;  // that are not -1
};

/// One micro-batch on the device: T tokens of all its sequences, folded into one dimension.
struct ModelInput {
  Tensor tokens_T;     // int32
  Tensor positions_T;  // int32, restarting with each sequence
  Tensor
      targets_T;  // int32, -1: ignored; undefined: the last stage returns logits instead of losses
  SequenceBounds bounds;  // the boundaries of the sequences
  /// With context parallelism, the tokens of each sequence that this rank holds. The T tokens are
  /// only these, and `bounds` has the boundaries of the sequences among them. Null: all tokens.
  std::shared_ptr<const ContextSlice> cp_slice;
  /// [T], on the host: 1 for padded positions, which are not routed to experts; null: there are
  /// none. The tokens of a prompt are not padding, although their targets are ignored.
  std::shared_ptr<const std::vector<int32_t>> padding;
  float loss_weight = 0;  // the gradient of each token's loss in backward; 0: not known yet
  /// True for objectives over answers: the gradient of each token's loss is known only in backward,
  /// so the head keeps its logits until then, and loss_weight applies only to the losses of
  /// routers.
  bool weighted_later = false;
  /// The teacher's logits for these tokens; the head releases them once its losses are computed.
  /// Null: the loss is the cross-entropy.
  std::shared_ptr<Distillation> distillation = nullptr;
  bool logits_of_part =
      false;  // without targets: of a sharded vocabulary, return this rank's logits
  /// Without targets: the row whose logits are wanted, of those that the head computes. A head may
  /// compute only this one and return [1, V]. -1: all rows.
  int64_t logits_row = -1;
  /// Without targets: each sequence is the next tokens of a text whose earlier ones the model has
  /// read with this cache (KeyValueCache::read() says which); `positions_T` counts from the start
  /// of the text. Null: whole sequences.
  KeyValueCache* cache = nullptr;
  /// Receives the deferred gradient of the output matrix, which the caller runs later; null: the
  /// head computes it at once.
  DeferredGradients* head_gradients = nullptr;
  std::vector<TokensAhead> ahead = {};  // of depths 1, 2, …; empty: the model predicts no further
                                        // tokens, or does not train
};

/// The part of the model that one pipeline stage builds. A value.
struct StageRange {
  bool first = true, last = true;  // first: has the embedding; last: has head and loss
  int64_t stage = 0, stages = 1;
  int64_t first_layer = 0, num_layers = -1;  // its blocks; -1: all blocks of the model
  int64_t mtp_stage = -1;  // the stage with the blocks of multi-token prediction; -1: the last one
  /// True if this stage has them.
  bool has_mtp() const { return mtp_stage < 0 ? last : stage == mtp_stage; }
  /// True if the blocks of multi-token prediction are in an earlier stage than the head. While
  /// training, their stage then passes on the streams of all depths, 0 (the next token), 1, …,
  /// concatenated along the rows.
  bool mtp_apart() const { return mtp_stage >= 0 && mtp_stage + 1 < stages; }
  /// Indices [begin, end) of the blocks of this stage, for a model with `total` blocks.
  std::pair<int64_t, int64_t> layers(int64_t total) const {
    if (num_layers < 0) return {0, total};
    MT_CHECK(first_layer >= 0 && first_layer + num_layers <= total, "blocks ", first_layer, " to ",
             first_layer + num_layers, " of ", total);
    return {first_layer, first_layer + num_layers};
  }
};

/// The inputs of a model's constructor, apart from its settings.
struct ModelContext {
  Scope scope;
  StageRange stage;
  int64_t vocab_size = 0;     // rows of the embedding, padding included
  int64_t valid_vocab = 0;    // ids the tokenizer can produce
  int64_t max_positions = 0;  // longest sequence
};

/// A number that a model reports for a step, and how the numbers of pipeline stages are combined.
struct StepFigure {
  enum class Join : uint8_t { sum, max };
  std::string name;
  double value = 0;
  Join join = Join::sum;
  double joined(double other) const {
    return join == Join::sum ? value + other : std::max(value, other);
  }
};

class MT_API Model {
 public:
  static constexpr std::string_view kKind = "model";
  using Context = ModelContext;
  virtual ~Model();
  /// Runs this stage. `x` is the residual stream of the previous stage (undefined on the first).
  /// The last stage returns the loss per token in float [T], or logits [T, V] if the input has no
  /// targets; other stages return the stream [T, D].
  virtual Tensor forward(const ModelInput& input, Tensor x) = 0;
  /// Floating-point operations of one token's forward and backward pass at this sequence length; a
  /// multiply-add is two.
  virtual double flops_per_token(int64_t seq_length) const = 0;
  /// The parts of this stage, from which the lists of a step's collectives are made
  /// (docs/pipeline.md): in the order of forward(), one entry for each time that a part computes.
  /// Empty: the parts are the blocks and what is before, between and after them, in the order in
  /// which the constructor adds their parameters. A model declares its parts if blocks share
  /// parameters or if it adds parameters in another order. The head is the last part.
  virtual std::vector<ComputedPart> parts() const { return {}; }
  /// True if forward() uses ModelInput::cache, so that the logits of a text's next tokens do not
  /// need a forward of the whole text. False if a token's result depends on later ones or on other
  /// sequences. A model whose attention is Attention or LatentAttention, causal, can return true.
  virtual bool continues_texts() const { return false; }
  /// Called after the last backward of a step and its update, if there was one. Collective over the
  /// ranks of the stage. The figures have the same names in the same order on all stages.
  virtual std::vector<StepFigure> end_step(bool /*updated*/) { return {}; }
};

}  // namespace mtrain
