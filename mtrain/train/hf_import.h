// Start values from a Hugging Face folder: its tensors by the model's own rename table. Its
// config.json: hf_config.h. Stateless.
#pragma once
#include "mtrain/nn/model.h"

namespace mtrain {

class HfDir;

/// Fills masters and values of `parameters` from the folder. Every parameter must be covered
/// exactly and every tensor of the folder used; all mismatches come in one Error(checkpoint) with
/// both names and shapes.
MT_API void import_hf_weights(const HfDir& source, const Model& model, ParamList& parameters);

}  // namespace mtrain
