// The sidecar file <kind>_<name>.json next to <kind>_<name>.so: the schema of the plugin's
// settings, written when the plugin is built, so that recipes can be checked without running plugin
// code. It names the build from which it was made; a sidecar of another build is refused.
// Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/config/fields.h"
#include "mtrain/plugin/plugin_host.h"

namespace mtrain {

class SchemaCatalog;  // config/catalog.h

/// The path of a plugin file's sidecar.
MT_API fs::path sidecar_path(const fs::path& plugin);

/// Loads the plugin and writes its sidecar next to it, atomically. Returns the sidecar's path. Runs
/// plugin code.
MT_API fs::path write_sidecar(const fs::path& plugin);

/// Throws Error(plugin) if the code of a checked file differs from when its sidecar was written, as
/// after a faulty disk or copy. This is a checksum, not a signature: a user who can write one file
/// can also write the other. Does nothing if there is no sidecar, or one of another build.
MT_API void require_undamaged(const PluginFileInfo& file);

/// The schema from the sidecar of a checked file. Throws Error(plugin) if the sidecar is missing,
/// damaged, belongs to another plugin, or was made from another build of the file.
MT_API Schema read_sidecar(const PluginFileInfo& file);

/// Adds the settings of every usable plugin in the host's folders to `catalog`, from the sidecars,
/// and for each kind the searched folders and why files were skipped. Runs no plugin code; never
/// throws for a bad file.
MT_API void add_components(const PluginHost& host, SchemaCatalog& catalog);

}  // namespace mtrain
