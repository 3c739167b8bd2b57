// Session: the objects that training, evaluation and generation share, built from a recipe —
// backend, run, tokenizer, model, parameters. Owns them all, in the order they depend on each
// other. For one rank's thread.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/data/loader.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/nn/model.h"
#include "mtrain/nn/precision.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/train/pipeline_plan.h"
#include "mtrain/train/recipe.h"

namespace mtrain {

class MT_API Session {
 public:
  struct Options {
    bool initialise = true;     // false: values come from a checkpoint
    int ranks_here = 1;         // that share this process's cores
    int place = 0;              // of this rank on its machine: which of its devices it takes
    bool own_device = false;    // ranks may not share one
    bool planning = false;      // true: kernels do nothing and memory is only counted (planning.h)
    bool defer_memory = false;  // parameters get theirs from ParamBuckets; not those that come from
                                // another checkpoint
    const ParallelContext* parallel = nullptr;  // what the model is cut over; null: nothing
    const PipelinePlan* pipeline = nullptr;     // how it is cut into stages; null: not at all
    int64_t pipeline_rank = 0;                  // whose stages are built
  };
  Session(const Recipe& recipe, PluginHost& plugins, Options options);
  ~Session();
  /// The device's own backend, also while planning.
  const Backend& device_backend() const { return real_backend ? *real_backend : *backend; }

  const Recipe& recipe;
  PluginHost& plugins;
  std::unique_ptr<Backend> real_backend;  // while planning: what `backend` stands in for
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Run> run;
  std::unique_ptr<Tokenizer> tokenizer;
  BlockPlan blocks;  // what the model keeps for backward; hooks are set before its first step
  PrecisionPlan precision;  // which products are in FP8 or FP4
  ParamList parameters;
  std::vector<std::unique_ptr<Model>> stages;  // of this rank, lowest first
  Model* model = nullptr;   // the first of them; the whole model where there is no pipeline
  int64_t vocab_size = 0;   // rows of the embedding
  int64_t valid_vocab = 0;  // ids that can occur
  std::string device;       // "cpu, 2 threads"

  /// For the interpreter. `ranks`: the pipeline's; null for one rank and for rehearsals.
  PipelinePlace place(Communicator* ranks = nullptr) const;

 private:
  Device open_backend(const Options& options);
  /// Start values from a Hugging Face folder, or from a run of ours.
  void import_weights(const fs::path& from);
  void build_stages(const Options& options);
  std::optional<BuildSettings> build_;
  PipelinePlace place_;
};

/// Uploads one micro-batch. `with_targets` false: the model is asked for logits.
MT_API ModelInput to_device(Run& run, const Batch& batch, bool with_targets = true);
/// Uploads what this rank has of a micro-batch of its data-parallel group, and tells the run which
/// tokens those are.
MT_API ModelInput own_part(Run& run, const Batch& batch, const ParallelContext& parallel);

/// Operations per second of a large square product in this dtype: the roof that MFU is a share of.
/// Takes some milliseconds.
MT_API double measured_peak_flops(Backend& backend, Device device, DType dtype);

/// What a rank's device can do at most in the recipe's number types, and who says so.
struct PeakRate {
  double flops = 0;    // per second
  std::string source;  // "989 TFLOP/s, as a h200 is sold (bf16)"
  bool measured = false;

  /// The share that a rate is. What is measured is a moment of a machine that others may use: a
  /// rate above it is the roof from then on.
  MT_API double share(double rate);
};
MT_API PeakRate peak_rate(const Settings& settings, const std::string& device, Backend& backend,
                          Device where = {});

}  // namespace mtrain
