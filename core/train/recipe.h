// Recipe: a checked configuration, ready to build from. Made by load_recipe() (from a file and overrides) or
// recipe_from_text() (from the resolved text that runs and checkpoints keep). A value; read-only once made.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "mtrain/config/container.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/train/settings.h"

namespace mtrain {

struct MT_API Recipe {
  Settings settings;
  ConfigContainer config;
  std::string name;      // of the recipe: its file's stem
  fs::path directory;    // relative paths in the recipe start here

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

/// Reads a recipe file with command-line overrides, checks it against all schemas and rules. Throws Error(config) with all
/// faults at once.
MT_API Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides, const PluginHost& plugins);
/// The same from text. `directory`: where its relative paths start.
MT_API Recipe recipe_from_text(const std::string& text, const std::string& source_name, const fs::path& directory,
                               const std::vector<std::string>& overrides, const PluginHost& plugins);

}  // namespace mtrain
