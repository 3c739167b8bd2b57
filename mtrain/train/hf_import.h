// Imports weights from a Hugging Face folder by the model's rename table; hf_config.h reads
// config.json. Stateless functions; for the rank's thread.
#pragma once
#include "mtrain/nn/model.h"

namespace mtrain {

class HfDir;

/// Fills masters and values of `parameters` from the folder. Every parameter must be covered
/// exactly and every tensor of the folder used; all mismatches come in one Error(checkpoint) with
/// both names and shapes.
MT_API void import_hf_weights(const HfDir& source, const Model& model, ParamList& parameters);

}  // namespace mtrain
