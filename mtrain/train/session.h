// Session: the objects that training, evaluation and generation share, built from a recipe —
// backend, run, tokenizer, model, parameters. Owns all of them, in the order of their dependencies.
// Refers to the recipe and the plugin host, which must outlive it. For one rank's thread.
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
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/recipe/recipe.h"

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
    const ParallelContext* parallel =
        nullptr;                             // the axes over which the model is sharded; null: none
    const PipelinePlan* pipeline = nullptr;  // how it is split into stages; null: no pipeline
    int64_t pipeline_rank = 0;               // whose stages are built
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

}  // namespace mtrain
