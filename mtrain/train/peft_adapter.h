// Low-rank adapters under the names of a Hugging Face folder's weights, as PyPI's peft stores them:
// adapter_config.json and adapter_model.safetensors. Functions read them from a run's checkpoint or
// from such a folder, write such a folder, and add them to the weights. Values; stateless functions
// for one thread.
#pragma once
#include <cstdint>
#include <functional>
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

/// The adapter of one weight [out,in]: scale · b · a is added to it; with a magnitude, row n of the
/// sum is then divided by its norm and multiplied by magnitude[n] (DoRA, arXiv:2402.09353). The
/// file may store the weight as [in,out]; a, b and the magnitude do not depend on that.
struct PeftModule {
  std::string weight;  // the tensor's name: "model.layers.0.self_attn.q_proj.weight"
  int64_t out = 0, in = 0, rank = 0;
  double alpha = 0;         // as in adapter_config.json
  double scale = 1;         // alpha / rank, or alpha / sqrt(rank)
  bool transposed = false;  // the file stores [in,out]
  int64_t stacks = 1;    // the tensor is this many matrices [out / stacks, in], one after the other
  bool experts = false;  // of experts
  std::vector<float> a, b;            // [rank,in], [out,rank]
  std::vector<float> magnitude = {};  // [out]; empty: none
  std::vector<float> gains = {};  // IA3 (arXiv:2205.05638): factors of the rows of the weight and
                                  // of its bias [out], or of its columns [in]; no a and b
  bool of_input = false;          // gains are those of the columns
  int64_t start_rank =
      0;  // peft.init=pissa: the last start_rank ranks subtract the initial adapter. All
          // ranks apply to the folder's weight, those before the last to the residual
  /// The place of an element of [out,in] in the file's tensor.
  int64_t element(int64_t row, int64_t column) const {
    const int64_t height = out / stacks;
    return transposed ? (row / height * in + column) * height + row % height : row * in + column;
  }
  /// "model.layers.0.self_attn.q_proj"
  std::string module() const;
};

/// A tensor that was trained itself, which replaces the one of the base (modules_to_save).
struct PeftWhole {
  std::string tensor;  // "lm_head.weight"
  Shape shape;         // in the file
  std::vector<float> values;
  std::vector<std::string> copies = {};  // tensors that repeat it, where a folder has them
};

struct PeftAdapter {
  std::vector<PeftModule> modules;  // by name
  std::vector<PeftWhole> whole;     // by name
  int64_t rank = 0;
  double alpha = 0, dropout = 0;
  bool rslora = false;
  bool dora = false;  // all modules have magnitudes
  bool ia3 = false;   // all modules have gains
  bool tied = false;  // a trained embedding that is also the output head stays both
  std::string base;   // base_model_name_or_path: the folder of the weights; may be empty
  std::string task;   // task_type; empty: none
};

/// The adapters of a checkpoint under the names of the family of model.init_from. A tensor of the
/// family that holds several of mtrain's matrices, such as fused queries, keys and values, gets one
/// adapter of the sum of their ranks. Tensors with parameters that peft.train names are whole, with
/// the base's rows where those are not trained.
MT_API PeftAdapter adapter_of_run(const Recipe& recipe, PluginHost& plugins,
                                  const CheckpointStore& store, int64_t step);

/// Fills the adapters among this rank's `parameters`. Error(checkpoint) that lists all differences
/// from the adapters of the recipe: weights, ranks, factors. `folder`: for messages. `warns`:
/// whether this rank warns about adapters that train differently than in peft; true on one rank of
/// a job.
MT_API void import_adapters(const PeftAdapter& adapter, const std::string& folder,
                            const Recipe& recipe, PluginHost& plugins, ParamList& parameters,
                            bool warns);

/// Throws the errors of peft.* that the start of a run would throw and that do not depend on
/// weights: of patterns that match nothing, and of adapters of peft.init_from that are not those of
/// the recipe. Builds tokenizer and model without memory, so it throws their errors, too.
MT_API void check_adapters(const Recipe& recipe, PluginHost& plugins);

/// peft.type of such adapters: "lora", "dora" or "ia3".
MT_API std::string type_of(const PeftAdapter& adapter);

/// The factor of an element of the weight. REQUIRES: it has gains.
inline float gain_of(const PeftModule& m, int64_t row, int64_t column) {
  return m.gains[static_cast<size_t>(m.of_input ? column : row)];
}

/// values [out,in] += scale · b · a, in float.
MT_API void add_product(const PeftModule& module, std::span<float> values);

/// The norms of the rows of a matrix [out,in], which is stored as [in,out] if `transposed`.
MT_API std::vector<float> row_norms(std::span<const float> values, int64_t out, int64_t in,
                                    bool transposed);

/// Adds the adapters to the weights of a session that has the whole model; each value is rounded
/// to the session's dtype. Error(checkpoint) that names adapters without a weight or for one of
/// another shape.
MT_API void add_adapters(const PeftAdapter& adapter, const std::string& folder, Session& session);

/// Reads a folder of peft. Error(checkpoint) that names every key of adapter_config.json that
/// changes the result and is not supported, and tensors without their counterpart (a or b) or with
/// a wrong shape.
MT_API PeftAdapter read_peft_folder(const fs::path& folder);

/// Writes such a folder; `dtype`: of the tensors. PeftAdapter::whole becomes modules_to_save.
/// Error(config) that names what peft cannot store or load: whole tensors of modules with adapters,
/// whole tensors that are not the weight or the bias of a module, and adapters of experts.
/// Error(io) if `to` exists. `add_files`: adds files to those of the adapters.
MT_API HfExported write_peft_folder(const PeftAdapter& adapter, DType dtype, const fs::path& to,
                                    const std::function<void(HfFolderWriter&)>& add_files = {});

/// The name or path of the model that adapter_config.json gives; empty: none.
MT_API std::string peft_base(const fs::path& folder);

/// Warns if a folder of peft names another model than `base`, to which its adapters are added. A
/// model that was moved or downloaded keeps the last part of its name. `from`: for messages.
MT_API void warn_of_other_base(const PeftAdapter& adapter, const std::string& from,
                               const fs::path& base);

/// Whether the folder has adapter_config.json.
MT_API bool is_peft_folder(const fs::path& folder);

/// Writes the weights of `base` with the adapters added to them: w + scale · b · a is computed in
/// float, its rows get the norms of the magnitudes, and it is rounded once. Other tensors keep
/// their bytes. `dtype`: absent: each tensor's own. `family`: its buffers stay fp32; null: unknown.
/// `coded`: values that replace those of the folder; null: none do.
/// Error(checkpoint) that names adapters without a weight or for one of another shape.
MT_API HfExported write_merged(const HfDir& base, const PeftAdapter& adapter,
                               std::optional<DType> dtype, uint64_t shard_bytes,
                               const HfFamily* family, HfFolderWriter& out,
                               const CodedValues* coded = nullptr);

}  // namespace mtrain
