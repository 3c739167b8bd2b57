// PluginHost: finds plugin files, checks their stamps, loads those that a run needs, and keeps them
// loaded for the life of the process. It owns the Registry that they fill. A file
// <folder>/<kind>_<name>.so holds exactly the component <name> of <kind>; recipes name components,
// never paths. Load plugins from one thread at start; const members are thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"
#include "mtrain/plugin/plugin_image.h"
#include "mtrain/plugin/registry.h"

namespace mtrain {

/// The kinds that users and clusters extend. Other kinds are possible, for example in tests.
inline constexpr const char* kPluginKinds[] = {"model",     "tokenizer", "dataset", "objective",
                                               "optimizer", "backend",   "comm"};

/// A plugin file on disk; none of its code has run.
struct PluginFileInfo {
  fs::path path;  // absolute
  std::string kind, name;
  std::string doc, version, identity;
  std::string problem;    // one line: why it cannot be used; empty if it can
  std::string remedy;     // what the user can do about the problem
  bool shadowed = false;  // an earlier folder holds a file of the same name
};

/// A loaded plugin. Ranks compare these to ensure that they run the same code.
struct LoadedPlugin {
  std::string kind, name, identity;
  fs::path path;
};

/// The folders to search, in order: `from_command_line`, MTRAIN_PLUGIN_PATH (separated by ':'), and
/// the built-in folder ../lib/mtrain/plugins relative to the executable's folder. Absolute, without
/// duplicates; they may not exist.
MT_API std::vector<fs::path> plugin_folders(const std::vector<std::string>& from_command_line);

/// Splits "optimizer_lion.so" into its kind and name; returns false if the file name has another
/// form.
MT_API bool parse_plugin_file_name(std::string_view file_name, std::string& kind,
                                   std::string& name);

class MT_API PluginHost {
 public:
  explicit PluginHost(std::vector<fs::path> folders);
  ~PluginHost();  // loaded code stays, since objects of plugins may outlive the host
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  /// Loads the plugin of that kind and name, and nothing else; does nothing if it is already
  /// loaded. Throws Error(plugin) with one line: unknown (with the nearest name, available plugins
  /// and searched folders), untrusted, wrong stamp, unloadable, or failed registration. A failed
  /// plugin leaves nothing in the registry.
  const Registry::Entry& load(std::string_view kind, std::string_view name);

  /// Loads one file by its path, for tools that get the path from the user. Its name must be
  /// <kind>_<name>.so.
  const Registry::Entry& load_file(const fs::path& path);

  /// load(), then creates a component of the plugin.
  template <class Kind>
  std::unique_ptr<Kind> make(std::string_view name, const Node& section,
                             typename Kind::Context& context) {
    load(Kind::kKind, name);
    return registry_.template make<Kind>(name, section, context);
  }

  /// Every plugin file in the folders, in the order of folders, then names. Runs no plugin code;
  /// never throws for a bad file.
  std::vector<PluginFileInfo> list() const;

  /// The file that load(kind, name) would open, checked but not run. Throws like load().
  PluginFileInfo locate(std::string_view kind, std::string_view name) const;

  const Registry& registry() const { return registry_; }
  const std::vector<fs::path>& folders() const { return folders_; }
  const std::vector<LoadedPlugin>& loaded() const { return loaded_; }

 private:
  struct Libraries;
  const Registry::Entry& open_and_register(const PluginFileInfo& file);
  Error unknown(std::string_view kind, std::string_view name) const;

  std::vector<fs::path> folders_;
  Registry registry_;
  std::vector<LoadedPlugin> loaded_;
  std::unique_ptr<Libraries> libraries_;
};

/// Checks one plugin file without running it: trust, format, stamp, and that the stamp has the name
/// of the file. Throws Error(plugin). The path may be relative.
MT_API PluginFileInfo inspect_plugin_file(const fs::path& path);

}  // namespace mtrain
