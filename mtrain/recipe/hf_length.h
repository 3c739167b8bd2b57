// The key of config.json that says for which length of sequences a model was trained, such as
// max_position_embeddings of models with rotary positions: nothing is computed from it, but weights
// know no positions beyond it. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>

#include "mtrain/config/report.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Whether a key without effect on the model says this length.
bool hf_gives_length(const HfKey& key);

/// What export writes at a key without effect: the value of the folder of origin or, if it is such
/// a length, `trained`, that of the run's sequences, where that is longer. The factors of the
/// scaling dynamic and longrope depend on the length, so there it stays.
hf::Json hf_kept_value(const HfKey& key, const hf::Json& theirs, int64_t trained,
                       const HfModel& model);

/// Warns if the recipe's sequences are longer than those of the folder whose config.json is `file`.
void warn_of_length(const Recipe& recipe, const HfFolderConfig& config, const std::string& file,
                    Report& report);

}  // namespace mtrain
