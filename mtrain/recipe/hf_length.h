// The key of config.json with the length of sequences for which a model was trained, such as
// max_position_embeddings of models with rotary positions: nothing is computed from it, but the
// model was not trained on later positions. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/config/report.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Whether a key without effect on the model holds this length.
bool hf_gives_length(const HfKey& key);

/// This length in a config.json of any family; 0: it is not there. `file`: for errors.
int64_t hf_length_of(const std::string& config_json, const std::string& file);

/// The value that export writes for a key without effect on the model: that of the folder of
/// origin. If the key holds this length, it is at least `trained`, the length of the run's
/// sequences, except with the scalings dynamic and longrope, whose factors depend on it.
hf::Json hf_kept_value(const HfKey& key, const hf::Json& theirs, int64_t trained,
                       const HfModel& model);

/// config.json of a folder whose model was trained further, with sequences of `trained` tokens:
/// the keys of this length have at least `trained`, as in hf_kept_value(). `file`: for errors.
MT_API std::string hf_config_with_length(const std::string& config_json, const std::string& file,
                                         const HfFamilies& families, const HfFamily& family,
                                         const HfModel& model, int64_t trained);

/// Warns if the recipe's sequences are longer than those of the folder whose config.json, or of the
/// run whose folder, is `file`.
void warn_of_length(const Recipe& recipe, const HfFolderConfig& config, const std::string& file,
                    Report& report);

}  // namespace mtrain
