// The labels of a model of scores in config.json: how many there are, and their names. Used by
// hf_config.cc and hf_write_config.cc. Stateless functions; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_tensors.h"

namespace mtrain::hf {

/// Whether the architecture is that of the family with a head of scores.
bool has_scores(const Json& config, const HfFamily& family);
/// Adds the setting model.labels of a folder with a head of scores, and a refusal if they are those
/// of a task that mtrain does not train. Nothing for another folder, with which the recipe decides
/// whether a new head takes the place of that over the vocabulary.
void take_labels(const Json& config, const HfFamily& family, HfFolderConfig& out);
/// Writes id2label and label2id, by which transformers counts labels: `names` if there are `count`,
/// otherwise those of `source`, the config.json from which the run started, or LABEL_0 …; and what
/// `source` says of the task (problem_type).
void write_labels(Json& config, const Json& source, size_t count,
                  const std::vector<std::string>& names);

/// "model.labels=3: t5 has no …" if the family has no such architecture; empty: it has, or the
/// model has no scores.
std::string unexpressed_scores(const HfFamily& family, const HfModel& model);

}  // namespace mtrain::hf
