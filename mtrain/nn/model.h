// Model: the plugin kind that a model author writes. Built for one pipeline stage; knows no rank,
// device or optimizer.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

/// One micro-batch on the device. T tokens of all its sequences, folded into one dimension.
struct ModelInput {
  Tensor tokens_T;     // int32
  Tensor positions_T;  // int32, restarting with each sequence
  Tensor
      targets_T;  // int32, -1 = ignored; undefined: the last stage gives logits instead of losses
  SequenceBounds bounds;  // where sequences begin and end
  /// Where this rank has but some of the tokens of each sequence (context parallelism): which ones.
  /// Its T tokens are those, and `bounds` tells where each sequence's lie among them. Null: all.
  std::shared_ptr<const ContextSlice> context;
  float loss_weight = 0;  // what backward will be given for each token's loss; 0: not known yet
  /// Where the head leaves the gradient of its matrix, for who runs it; null: it adds it up at
  /// once.
  DeferredGradients* head_gradients = nullptr;
};

/// The part of the model that one pipeline stage builds. A value.
struct StageRange {
  bool first = true, last = true;  // has the embedding; has head and loss
  int64_t stage = 0, stages = 1;
  int64_t first_layer = 0, num_layers = -1;  // its blocks; -1: all of the model
  /// Indices [begin, end) of the blocks this stage owns, of a model with `total`.
  std::pair<int64_t, int64_t> layers(int64_t total) const {
    if (num_layers < 0) return {0, total};
    MT_CHECK(first_layer >= 0 && first_layer + num_layers <= total, "blocks ", first_layer, " to ",
             first_layer + num_layers, " of ", total);
    return {first_layer, first_layer + num_layers};
  }
};

/// What a model is given besides its own settings.
struct ModelContext {
  Scope scope;
  StageRange stage;
  int64_t vocab_size = 0;     // rows of the embedding, padding included
  int64_t valid_vocab = 0;    // ids the tokenizer can produce
  int64_t max_positions = 0;  // longest sequence
};

/// Where one parameter's values lie in a Hugging Face checkpoint: rows of its first dimension,
/// piece by piece; of one with three dimensions, rows of its first two.
struct HfPiece {
  std::string tensor;          // the name in the file
  int64_t source_row = 0;      // first row taken there
  int64_t row = 0, rows = -1;  // rows written here; -1: all
  bool transpose = false;      // the file stores [in, out]
};
struct HfParameter {
  std::string parameter;  // our name
  std::vector<HfPiece> pieces;
};

/// A number that a model tells of a step, and how those of pipeline stages become one.
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
  /// Runs this stage. `x` is the stream of the stage before (undefined on the first). The last
  /// stage returns the loss per token in float [T], or logits [T, V] when the input has no targets;
  /// other stages return the stream [T, D].
  virtual Tensor forward(const ModelInput& input, Tensor x) = 0;
  /// Multiply-add operations of one token's forward and backward pass at this sequence length,
  /// times two.
  virtual double flops_per_token(int64_t seq_length) const = 0;
  /// After the last backward of a step and its update, if there was one. Collective over the ranks
  /// of the stage. What it tells has the same names in the same order on all stages.
  virtual std::vector<StepFigure> end_step(bool /*updated*/) { return {}; }
  /// How the parameters are named in Hugging Face checkpoints of this family; empty when there are
  /// none.
  virtual std::vector<HfParameter> hf_parameters() const { return {}; }
  /// Tensors that such checkpoints may hold beside those, and that this model has no use for: a
  /// pooler, the second copy of a tied matrix.
  virtual std::vector<std::string> hf_unused() const { return {}; }
};

}  // namespace mtrain
