// Recipe: a checked configuration, ready to build from. Made by load_recipe() (from a file, a name
// or a text, with overrides) or recipe_from_text() (from the resolved text that runs and
// checkpoints store). A value; read-only once made.
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
  std::optional<std::string> text;  // the text of the recipe; `recipe` is then its name
  bool weights = true;    // false: `text` has the settings of model.init_from, which is not read
  bool resolved = false;  // `text` was saved by a run: choosing another component removes the
                          // settings of the saved one
  fs::path directory;     // with `text`: the folder to which its relative paths are relative
  std::vector<OverrideText> overrides;
  Cluster cluster;
  int64_t trial = 0;     // the number of the sweep's trial: ${run:trial}
  int64_t launched = 0;  // a run starts with this number of ranks, the default of dist.nproc and
                         // dist.comm; 0: no run starts
  bool any_ranks =
      false;  // if the number of ranks is not given, use the smallest one for the layout
};

struct MT_API Recipe {
  Settings settings;
  ConfigContainer config;
  std::string name;               // the recipe's name: the stem of its file
  fs::path directory;             // relative paths in the recipe start here
  std::vector<InputPath> inputs;  // the files that it names, and where they are named
  Report report;                  // the report of reading it; only warnings after load_recipe()
  int64_t folder_vocab = 0;       // rows of the embedding in the Hugging Face folder of
                                  // model.init_from; 0: there is no such folder
  int64_t folder_ffn = 0;         // width of the MLPs of that folder; 0: not known
  bool weights_only = false;      // the run's step 0 gets no optimizer state (mtrain import)
  int64_t ranks = 0;              // the number of ranks for which it was checked; 0: not given
  std::string dtype_reason;       // why mixed_precision.dtype=auto chose its type (dtype_choice.h);
                                  // empty if the recipe sets the type

  /// The plugin's own settings in a section ("model"), for Registry::make.
  const Node& component(std::string_view section) const;
  /// A path of the recipe, relative to its folder unless absolute.
  fs::path resolve(const std::string& path) const;
  /// The run's folder.
  fs::path run_directory() const;
  fs::path checkpoint_directory() const;
};

/// The schemas of all sections and of every plugin found, without running plugin code.
MT_API SchemaCatalog schema_catalog(const PluginHost& plugins);

/// Makes the recipe's input paths absolute, so that its settings mean the same in any folder.
MT_API void make_input_paths_absolute(Recipe& recipe, const PluginHost& plugins);

/// The context for making the recipe's dataset.
MT_API DatasetContext dataset_context(const Recipe& recipe, const Tokenizer* tokenizer);

/// Reads a recipe and checks it against all schemas and rules. All faults are in the recipe's
/// report; the recipe is usable only if report.ok().
MT_API Recipe read_recipe(const RecipeRequest& request, const PluginHost& plugins);
/// The same, and throws Error(config) with all faults at once.
MT_API Recipe load_recipe(const RecipeRequest& request, const PluginHost& plugins);
MT_API Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                          const PluginHost& plugins);
/// The same from text. `directory`: the folder to which its relative paths are relative.
MT_API Recipe recipe_from_text(const std::string& text, const std::string& source_name,
                               const fs::path& directory, const std::vector<std::string>& overrides,
                               const PluginHost& plugins);

}  // namespace mtrain
