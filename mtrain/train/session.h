// Session: the objects that training, evaluation and generation share, built from a recipe:
// backend, execution context, tokenizer, model, parameters. Owns all of them, in the order of their
// dependencies. Refers to the recipe and the plugin host, which must outlive it. For one rank's
// thread.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/data/loader.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/nn/adapter.h"
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
    bool initialise =
        true;  // false: no initial weights, since a checkpoint follows or it is a dry run
    bool new_adapters = true;    // false: a checkpoint provides the adapters of peft.init_from
    bool score_follows = false;  // adapters that are added later have the head of scores
    int ranks_here = 1;          // ranks in this process, which share its CPU cores
    int local_rank = 0;          // among the ranks on this machine; selects the device
    bool own_device = false;     // error if ranks of this machine would have to share a device
    bool planning =
        false;  // dry run: kernels do nothing, memory is address space only (planning.h)
    bool defer_memory = false;  // ParamBuckets will allocate the parameters. Ignored if the initial
                                // weights come from model.init_from: they are loaded here
    const ParallelContext* parallel =
        nullptr;  // the axes over which the model is sharded; null: none
    const PipelinePlan* pipeline =
        nullptr;                // how the model is split into stages; null: no pipeline
    int64_t pipeline_rank = 0;  // the pipeline rank whose stages are built
    /// Another model in the same execution context, of which no parameter is trained: a teacher.
    /// The context belongs to both sessions. Null: a context of its own.
    const std::shared_ptr<ExecutionContext>* shared_context = nullptr;
    bool frozen = false;             // no parameter is trained, as with shared_context
    uint64_t seed_shift = 0;         // initial random values are those of another seed
    bool check_whole_model = false;  // compare all of model.init_from with the whole model, also if
                                     // this rank builds only some stages; one rank does it for all
  };
  Session(const Recipe& recipe, PluginHost& plugins, Options options);
  ~Session();
  /// The device's own backend, also while planning.
  const Backend& device_backend() const { return real_backend ? *real_backend : *backend; }

  const Recipe& recipe;
  PluginHost& plugins;
  std::unique_ptr<Backend> real_backend;  // while planning: the backend that `backend` replaces
  std::unique_ptr<Backend> backend;       // null: that of Options::shared_context
  std::shared_ptr<ExecutionContext> ctx;
  std::unique_ptr<Tokenizer> tokenizer;
  BlockPlan blocks;                     // what the model's blocks keep for backward
  PrecisionPlan precision;              // which matrix products are in FP8 or FP4
  std::optional<AdapterPlan> adapters;  // absent: all parameters are trained
  ParamList parameters;
  std::vector<std::unique_ptr<Model>> stages;  // the stages of this rank, in ascending order
  Model* model = nullptr;    // the first of `stages`; the whole model if there is no pipeline
  int64_t vocab_size = 0;    // rows of the embedding
  int64_t valid_vocab = 0;   // token ids that the model can predict; the other rows are padding
  int64_t depths_ahead = 0;  // of multi-token prediction, if this rank has the stage that learns it
  std::string device;        // "cpu", or the device's line in DeviceBackend::describe()

  /// The rank's place in the pipeline, for the interpreter. `ranks`: the pipeline's communicator;
  /// null for one rank and for dry runs.
  PipelinePlace place(Communicator* ranks = nullptr) const;

 private:
  Device open_backend(const Options& options);
  /// Loads initial weights from a Hugging Face folder or from a run of mtrain. Refuses tensors that
  /// the model does not have, and parameters of other stages that are missing, if this rank has all
  /// stages or is the one that checks the whole model.
  void import_weights(const fs::path& from, const Options& options);
  void note_new_score(const fs::path& from, const Options& options) const;
  void build_stages(const Options& options);
  std::optional<BuildSettings> build_;
  PipelinePlace place_;
};

}  // namespace mtrain
