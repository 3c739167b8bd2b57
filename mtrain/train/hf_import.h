// Imports weights from a Hugging Face folder by the table of its family (recipe/hf_tensors.h);
// hf_config.h reads config.json. Stateless functions; for the rank's thread.
#pragma once
#include <cstdint>
#include <optional>

#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/upcycle.h"

namespace mtrain {

class HfDir;
class PrincipalStart;

/// How the folder's model may differ from the parameters.
struct HfImportOptions {
  /// Rows of the folder's tables of tokens, where the model's may have more or fewer
  /// (model.init_vocab=resize): tensors of the family with `rows: vocabulary`. If the folder has
  /// more rows than the model, the first ones are taken; if it has fewer, the added rows, padding
  /// included, get the mean of the folder's rows, which is summed in double in their order, so that
  /// it does not depend on the layout. Nothing: the rows must be the model's.
  std::optional<int64_t> folder_vocab = {};
  /// The folder has a dense model, whose MLPs become the experts (model.init_upcycle). Routers
  /// start from random values. `family` is then that of the dense model.
  std::optional<Upcycling> upcycling = {};
  /// Splits weights into adapters and residuals (peft.init=pissa); null: weights stay whole.
  PrincipalStart* principal = nullptr;
  /// The folder has a head over the vocabulary, and the model one of scores (nn/score_head.h),
  /// which starts from random values; Error(config) if that is frozen. The folder's is not read.
  bool new_score = false;
};

/// Every parameter must be covered exactly and every tensor of the folder used; all mismatches come
/// in one Error(checkpoint) with both names and shapes. Reads no values. Tensors of parameters that
/// are in the family's table and not in `parameters` count as used: a pipeline rank reads only a
/// part. So do tensors that the family lists as unused, and what some exports add to the weights:
/// buffers, such as .rotary_emb.inv_freq, and the second copy of a tied head.
MT_API void require_hf_fit(const HfDir& source, const HfFamily& family, const HfModel& model,
                           ParamList& parameters, const HfImportOptions& options = {});

/// Fills masters and values of `parameters` and its buffers from the folder; quantized tensors are
/// dequantized (checkpoint/hf_weights.h). Throws what require_hf_fit throws, and Error(checkpoint)
/// that names a tensor with a value that is not finite, or a tensor that must repeat another one,
/// such as lm_head.weight of a tied head, but differs from it.
MT_API void import_hf_weights(const HfDir& source, const HfFamily& family, const HfModel& model,
                              ParamList& parameters, const HfImportOptions& options = {});

}  // namespace mtrain
