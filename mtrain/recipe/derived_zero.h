// Settings whose value 0 stands for a number that other settings determine: model.kv_heads=0 is
// model.heads. Whoever compares settings compares these numbers: resume and export. Stateless
// functions; safe from any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// The setting of a path, "model.heads"; null if it is not known.
using ValueOfPath = std::function<Node(const std::string& path)>;

/// The number for which 0 stands at `path`; null if 0 is no number of others, or one of them is not
/// known. `component`: the `type` of the section. Paths of sizes of a model are the usual ones
/// (usual_path in rules.h).
Node derived_of_zero(const std::string& path, const std::string& component,
                     const ValueOfPath& value_of);

/// A value in the place of which others are compared: that for which 0 stands, else itself.
Node resolved_value(const std::string& path, const std::string& component, const Node& value,
                    const ValueOfPath& value_of);

/// A setting that is 0 in two recipes, but stands for other numbers.
struct ImpliedChange {
  std::string path;
  Node before, after;
  std::vector<std::string> from;  // the settings that determine the number
};
std::vector<ImpliedChange> implied_changes(const ConfigContainer& before,
                                           const ConfigContainer& now);

/// The setting of a path in a recipe; a size of the model by its usual path, whatever the model
/// plugin calls it. `tokenizer_ids`: "tokenizer.ids"; 0: not known.
ValueOfPath values_of(const ConfigContainer& config, int64_t tokenizer_ids = 0);

}  // namespace mtrain
