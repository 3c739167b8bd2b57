// Multi-token prediction (DeepSeek-AI 2024, arXiv:2412.19437, 2.2): blocks after the last one that
// learn to predict the tokens after the next one. The depths form a chain: depth k reads the stream
// of depth k - 1 and the embedding of the token k positions later, and predicts the token after it.
// Embedding and output head are those of the model. The losses only add to the gradients: the
// model's own loss is that of the next token, and without gradients the blocks do not run. The
// blocks and their losses may be on different pipeline stages. Owned by the model; for the rank's
// own thread. Dimensions: T tokens (batch folded in), D embed.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/decoder_block.h"
#include "mtrain/nn/layers.h"

namespace mtrain {

struct MT_API MtpSettings {
  int64_t layers = 0;
  double loss_coeff = 0.1;
  bool standalone = false;
  void bind(Fields& f);
};

/// The losses of the depths, on the stage with the head.
class MT_API MtpLosses {
 public:
  MtpLosses(ExecutionContext& ctx, const MtpSettings& settings);
  /// The loss of depth k from its stream, float [T], for attach_loss() with factor(). Runs before
  /// `head` computes the loss of the next token, as parts() of the model say. REQUIRES: `input` has
  /// targets, and this depth in `ahead`.
  Tensor operator()(size_t k, const Tensor& stream_TD, const ModelInput& input, const LmHead& head);
  /// The factor of each depth's loss in the objective: loss_coeff / depths (eq. 25).
  float factor() const;

  /// The figures of a step, "mtp_1_loss" and so on: the mean loss of each depth over the targets
  /// that it has. Collective over the ranks of the stage. `module`: of this stage; null: it has
  /// none, and its figures are 0.
  static std::vector<StepFigure> end_step(const MtpSettings& settings, MtpLosses* module,
                                          const ParallelContext& parallel);

 private:
  struct Depth {
    Tensor sum;               // float [1]: the losses of the step so far
    bool is_empty = true;     // nothing has been added yet
    int64_t num_targets = 0;  // of the step so far, on this rank
  };
  void record(Depth& depth, const Tensor& loss_T, int64_t num_targets) const;

  MtpSettings settings_;
  std::vector<Depth> depths_;
};

class MT_API MultiTokenPrediction {
 public:
  struct Options {
    MtpSettings settings;
    Dim embed, vocab;
    NormOptions norm;
    float init_std = 0.02f, embedding_factor = 1;
    int64_t layers = 0;  // of the model: the blocks are like its last one
  };
  using MakeBlock = std::function<std::unique_ptr<DecoderBlock>(const Scope& scope)>;
  /// `table`: the model's embedding, or this stage's copy of it.
  MultiTokenPrediction(const Scope& model, const Options& options, Parameter& table,
                       const MakeBlock& make);

  /// Calls `use(k, stream)` with the stream of each depth k = 0, 1, … [T,D], as soon as it is
  /// computed. `normed_TD`: the stream after the model's last norm. REQUIRES: `input` has all
  /// depths in `ahead`.
  void each_stream(const Tensor& normed_TD, const ModelInput& input,
                   const std::function<void(size_t, const Tensor&)>& use) const;

  /// The parts of the depths (Model::parts), each of which reads `reads`, too.
  std::vector<ComputedPart> parts(const std::vector<std::string>& reads) const;

 private:
  struct Depth {
    Norm enorm, hnorm;
    Linear eh_proj;
    std::unique_ptr<DecoderBlock> block;
    Norm norm;
  };
  Tensor step(const Depth& depth, const Tensor& stream_TD, const Tensor& tokens_T,
              const ModelInput& input) const;

  Options options_;
  BlockPlan plan_;
  Embedding embed_;
  std::vector<Depth> depths_;
};

}  // namespace mtrain
