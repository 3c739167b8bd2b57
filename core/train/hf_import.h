// Start values from a Hugging Face folder: its tensors by the model's own rename table, its config.json by the schema's
// known names. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/schema.h"
#include "mtrain/nn/model.h"

namespace mtrain {

class HfDir;

/// Fills masters and values of `parameters` from the folder. Every parameter must be covered exactly and every tensor of the
/// folder used; all mismatches come in one Error(checkpoint) with both names and shapes.
MT_API void import_hf_weights(const HfDir& source, const Model& model, ParamList& parameters);

/// One setting that config.json decides: "model.layers" = 5, called "num_hidden_layers" there.
struct HfSetting {
  std::string path, theirs;
  Node value;
};
/// The settings of the `model` section that config.json names, found through each field's known foreign names.
MT_API std::vector<HfSetting> hf_settings(const std::string& config_json, const std::string& file_name,
                                          const std::vector<const Schema*>& schemas);

}  // namespace mtrain
