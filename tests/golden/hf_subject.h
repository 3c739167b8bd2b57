// A model under comparison with Hugging Face: built from a folder's config.json through the plugin
// host, filled with its weights, and run through the interpreter and the optimizer as a training
// run would. Parameters and gradients are shown under their names and layouts in Hugging Face
// files. Owns everything it made. For one thread.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/hf_tensors.h"

namespace mtrain::golden {

using Rows =
    std::vector<std::vector<int32_t>>;  // token ids, one sequence a row, all of equal length
using Tensors = std::map<std::string, std::vector<float>>;

struct Batch {
  Rows ids, targets;  // a target for each id; -1: none
};
/// Each id but the last of a row predicts the next one.
Batch next_tokens(const Rows& rows);

struct SubjectOptions {
  DType dtype = DType::f32;
  bool recompute = false;
  std::string config = "config.json";
  int64_t seq_length = 0;  // 0: that of config.json's positions
  /// > 0: the last ids of a row are the decoder's. The encoder reads those before them; zeros at
  /// their end are padding.
  int64_t decoder = 0;
};

/// Where subjects compute: the environment's MTRAIN_TEST_BACKEND, else "cpu".
std::string backend_under_test();
/// That backend; throws Error(config) if it has no device.
std::unique_ptr<Backend> make_backend(PluginHost& plugins);

/// AdamW as the golden steps were made: constant rate, decay of matrices only.
struct Recipe {
  double lr = 1e-3, weight_decay = 0.1, clip = 1;
};

class Subject {
 public:
  explicit Subject(const fs::path& folder, SubjectOptions options = {});
  ~Subject();

  /// [rows * length, vocab], row-major.
  std::vector<float> logits(const Rows& rows);
  /// The same for one row, whose tokens the model reads in pieces of these sizes, with a cache of
  /// the earlier ones. REQUIRES: the sizes add up to the row.
  std::vector<float> logits_in_pieces(const std::vector<int32_t>& row,
                                      const std::vector<int64_t>& pieces);
  bool continues_texts() const { return model_->continues_texts(); }
  /// Mean loss over all targets, without gradients.
  double evaluate(const Batch& batch);
  /// Forward and backward of `batch` in micro-batches of `rows_per_micro`; gradients are then there
  /// to look at.
  double forward_backward(const Batch& batch, int64_t rows_per_micro);
  double grad_norm() const { return optimizer_state_->grad_norm(1); }
  /// One update with the gradients of forward_backward().
  void update(const Recipe& recipe);

  /// Masters or gradients by their Hugging Face names. Throws when the rename table covers an
  /// element twice or never.
  Tensors parameters() const;
  Tensors gradients() const;
  ExecutionContext& context() { return *ctx_; }

 private:
  ModelInput input(const Rows& ids, const Rows& targets);
  Tensors to_hf(bool gradients) const;

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutionContext> ctx_;
  HfFamily family_;
  Node section_;
  Schema schema_;
  ParamList parameters_;
  BlockPlan blocks_;
  std::optional<BuildSettings> build_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<OptimizerState> optimizer_state_;
  std::optional<Interpreter> interpreter_;
  int64_t updates_ = 0, decoder_ = 0;
};

/// A tensor of a file as floats or ids.
std::vector<float> floats(const TensorInfo& tensor);
Rows id_rows(const TensorInfo& tensor);
/// All tensors of a file.
Tensors read_tensors(const fs::path& file);

}  // namespace mtrain::golden
