// Low-rank adapters under the names of a Hugging Face folder's weights, as PyPI's peft stores them:
// adapter_config.json and adapter_model.safetensors. From a run's checkpoint or from such a folder,
// to such a folder or added to the weights. Values; stateless functions for one thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mtrain/checkpoint/store.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/train/hf_export.h"

namespace mtrain {

class CodedValues;
class Session;

/// The adapter of one weight [out,in]: scale · b · a is added to it. The file may store the weight
/// as [in,out]; a and b do not depend on that.
struct PeftModule {
  std::string weight;  // the tensor's name: "model.layers.0.self_attn.q_proj.weight"
  int64_t out = 0, in = 0, rank = 0;
  double alpha = 0;         // as in adapter_config.json
  double scale = 1;         // alpha / rank, or alpha / sqrt(rank)
  bool transposed = false;  // the file stores [in,out]
  std::vector<float> a, b;  // [rank,in], [out,rank]
  /// "model.layers.0.self_attn.q_proj"
  std::string module() const;
};

struct PeftAdapter {
  std::vector<PeftModule> modules;  // by name
  int64_t rank = 0;
  double alpha = 0, dropout = 0;
  bool rslora = false;
  std::string base;  // base_model_name_or_path: the folder of the weights; may be empty
  std::string task;  // task_type; empty: none
};

/// The adapters of a checkpoint under the names of the family of model.init_from. A tensor of the
/// family that holds several of mtrain's matrices, such as fused queries, keys and values, gets one
/// adapter of the sum of their ranks. Error(config) if the run trains other parameters, too.
MT_API PeftAdapter adapter_of_run(const Recipe& recipe, PluginHost& plugins,
                                  const CheckpointStore& store, int64_t step);

/// Fills the adapters of `parameters` of this rank. Error(checkpoint) with everything in which the
/// adapters differ from those of the recipe: weights, ranks, factors. `folder`: for messages.
/// `warns`: of adapters that train otherwise than in peft; one rank of a job does.
MT_API void import_adapters(const PeftAdapter& adapter, const std::string& folder,
                            const Recipe& recipe, PluginHost& plugins, ParamList& parameters,
                            bool warns);

/// values [out,in] += scale · b · a, in float.
MT_API void add_product(const PeftModule& module, std::span<float> values);

/// Adds the adapters to the weights of a session that has the whole model; each value is rounded
/// to the session's dtype. Error(checkpoint) that names adapters without a weight or for one of
/// another shape.
MT_API void add_adapters(const PeftAdapter& adapter, const std::string& folder, Session& session);

/// Reads a folder of peft. Error(checkpoint) that names every key of adapter_config.json that
/// changes the result and is not supported, and tensors that have no partner or another shape.
MT_API PeftAdapter read_peft_folder(const fs::path& folder);

/// Writes such a folder; `dtype`: of the tensors. Error(io) if `to` exists.
MT_API HfExported write_peft_folder(const PeftAdapter& adapter, DType dtype, const fs::path& to);

/// Whether the folder has adapter_config.json.
MT_API bool is_peft_folder(const fs::path& folder);

/// Writes the weights of `base` with the adapters added to them: w + scale · b · a is computed in
/// float and rounded once. Other tensors keep their bytes. `dtype`: absent: each tensor's own.
/// `family`: its buffers stay fp32; null: unknown.
/// `coded`: values that replace those of the folder; null: none do.
/// Error(checkpoint) that names adapters without a weight or for one of another shape.
MT_API HfExported write_merged(const HfDir& base, const PeftAdapter& adapter,
                               std::optional<DType> dtype, uint64_t shard_bytes,
                               const HfFamily* family, HfFolderWriter& out,
                               const CodedValues* coded = nullptr);

}  // namespace mtrain
