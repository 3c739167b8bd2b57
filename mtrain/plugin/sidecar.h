// The sidecar <kind>_<name>.json beside <kind>_<name>.so: the schema of the plugin's settings,
// written when it was built, so that a recipe can be checked without running any plugin. It names
// the build it was made from; one that belongs to another build is refused. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/config/fields.h"
#include "mtrain/plugin/plugin_host.h"

namespace mtrain {

class SchemaCatalog;  // config/container.h

/// Where the sidecar of a plugin file is.
MT_API fs::path sidecar_path(const fs::path& plugin);

/// Loads the plugin and writes its sidecar beside it, whole or not at all. Returns the sidecar's
/// path. Runs plugin code.
MT_API fs::path write_sidecar(const fs::path& plugin);

/// Throws Error(plugin) when the code of a judged file is not what it was when its sidecar was
/// written, as behind a faulty disk or copy. A checksum, not a signature: who may write the one may
/// write the other. Nothing when there is no sidecar, or that of another build.
MT_API void require_undamaged(const PluginFileInfo& file);

/// The schema from the sidecar of a judged file. Throws Error(plugin) when it is missing, damaged,
/// of another plugin, or was made from another build of the file.
MT_API Schema read_sidecar(const PluginFileInfo& file);

/// Adds the settings of every usable plugin of the host's folders to `catalog`, from their
/// sidecars, and for each kind the folders searched and why a file was passed over. Runs no plugin
/// code; never throws for a bad file.
MT_API void add_components(const PluginHost& host, SchemaCatalog& catalog);

}  // namespace mtrain
