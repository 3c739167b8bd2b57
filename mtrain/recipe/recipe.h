// Recipe: a checked configuration, ready to build from. Made by load_recipe() (from a file, a name
// or a text, with overrides) or recipe_from_text() (from the resolved text that runs and
// checkpoints keep). A value; read-only once made.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/container.h"
#include "mtrain/data/dataset.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/cluster.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/recipe/settings.h"

namespace mtrain {

struct RecipeRequest {
  std::string recipe;               // a file, a name in the search path, or "-" for standard input
  std::optional<std::string> text;  // the recipe itself; `recipe` is then its name
  bool resolved =
      false;           // `text` is what a run saved: another component drops the old one's settings
  fs::path directory;  // with `text`: where its relative paths start
  std::vector<OverrideText> overrides;
  Cluster cluster;
  int64_t trial = 0;     // of a sweep: ${run:trial}
  int64_t launched = 0;  // a run begins, as one of so many ranks: dist.nproc, and dist.comm, where
                         // the recipe says nothing; 0: none begins
  bool any_ranks =
      false;  // where nobody says how many ranks there are: as many as the layout takes at least
};

struct MT_API Recipe {
  Settings settings;
  ConfigContainer config;
  std::string name;               // of the recipe: its file's stem
  fs::path directory;             // relative paths in the recipe start here
  std::vector<InputPath> inputs;  // the files that it names, and who named them
  Report report;                  // of reading it; only warnings once it is loaded
  int64_t ranks = 0;              // that it was checked for; 0: nobody said how many
  std::string dtype_reason;  // why mixed_precision.dtype=auto took its type (dtype_choice.h); empty
                             // where the recipe names it

  /// The plugin's own settings in a section ("model"), for Registry::make.
  const Node& component(std::string_view section) const;
  /// A path of the recipe, taken from its folder unless absolute.
  fs::path resolve(const std::string& path) const;
  /// The run's folder.
  fs::path run_directory() const;
  fs::path checkpoint_directory() const;
};

/// The schemas of all sections and of every plugin found, without running plugin code.
MT_API SchemaCatalog schema_catalog(const PluginHost& plugins);

/// What the maker of the recipe's dataset is given.
MT_API DatasetContext dataset_context(const Recipe& recipe, const Tokenizer* tokenizer);

/// Reads a recipe and checks it against all schemas and rules. Every fault is in the recipe's
/// report; it is for use only when report.ok().
MT_API Recipe read_recipe(const RecipeRequest& request, const PluginHost& plugins);
/// The same, and throws Error(config) with all faults at once.
MT_API Recipe load_recipe(const RecipeRequest& request, const PluginHost& plugins);
MT_API Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                          const PluginHost& plugins);
/// The same from text. `directory`: where its relative paths start.
MT_API Recipe recipe_from_text(const std::string& text, const std::string& source_name,
                               const fs::path& directory, const std::vector<std::string>& overrides,
                               const PluginHost& plugins);

}  // namespace mtrain
