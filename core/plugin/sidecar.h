// The sidecar <kind>_<name>.json beside <kind>_<name>.so: the schema of the plugin's settings, written when it was built, so
// that a recipe can be checked without running any plugin. It names the build it was made from; one that belongs to
// another build is refused. Catalog is for one thread at a time.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/config/fields.h"
#include "mtrain/plugin/plugin_host.h"

namespace mtrain {

/// Where the sidecar of a plugin file is.
MT_API fs::path sidecar_path(const fs::path& plugin);

/// Loads the plugin and writes its sidecar beside it, whole or not at all. Returns the sidecar's path. Runs plugin code.
MT_API fs::path write_sidecar(const fs::path& plugin);

/// The schema from the sidecar of a judged file. Throws Error(plugin) when it is missing, damaged, of another plugin, or was
/// made from another build of the file.
MT_API Schema read_sidecar(const PluginFileInfo& file);

/// The settings of every plugin of a search path, read from the sidecars on first use of each.
class MT_API Catalog {
 public:
  /// REQUIRES: the host outlives the catalog.
  explicit Catalog(const PluginHost& host) : host_(&host) {}

  /// The schema of a plugin. Throws Error(plugin): unknown (as PluginHost::load), unusable, or without a good sidecar.
  const Schema& require(std::string_view kind, std::string_view name);
  /// The usable names of a kind.
  std::vector<std::string> names(std::string_view kind) const;

 private:
  const PluginHost* host_;
  std::map<std::pair<std::string, std::string>, Schema, std::less<>> schemas_;
};

}  // namespace mtrain
