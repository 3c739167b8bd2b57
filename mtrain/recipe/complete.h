// Shell completion: recipes, settings and their values, run folders. Reads the search path and the
// schemas; runs no plugin code, writes nothing, and never throws for incomplete input. Stateless
// functions; safe from any thread.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/recipe/recipe.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {

/// A possible completion. One that ends in '=', '.' or '/' is incomplete.
struct Candidate {
  std::string text, doc;
};

/// Recipes by name, and files that may be recipes.
MT_API std::vector<Candidate> complete_recipe(const std::string& typed,
                                              const std::vector<SearchFolder>& folders);
/// Completions of a partly typed override: "optimizer." "optimizer.lr=" "optimizer=adamw"
/// "model.recompute=full". `recipe`: the recipe on the command line, "" if there is none yet.
MT_API std::vector<Candidate> complete_override(const std::string& typed, const std::string& recipe,
                                                const PluginHost& plugins);
/// Paths of settings, "optimizer.lr".
MT_API std::vector<Candidate> complete_key(const std::string& typed, const SchemaCatalog& catalog);
/// Returns the candidate for an entry of a folder, typed as `path`, or nullopt to leave it out.
using AcceptEntry = std::function<std::optional<Candidate>(const fs::directory_entry& entry,
                                                           const std::string& path)>;
/// The entries of the folder of a partly typed path, as they would be typed.
MT_API std::vector<Candidate> complete_entries(const std::string& typed, const AcceptEntry& accept);
/// Folders of runs and, inside them, of checkpoints.
MT_API std::vector<Candidate> complete_run(const std::string& typed);
/// Files whose names end in `extension`, and folders.
MT_API std::vector<Candidate> complete_file(const std::string& typed, const std::string& extension);

}  // namespace mtrain
