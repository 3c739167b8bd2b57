// Prints a configuration: a view selects the settings and annotations, a format the notation.
// Stateless functions; safe from any thread.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

enum class ConfigView {
  resolved,   // every setting with its value
  raw,        // the settings of the recipe and the overrides, with expressions as written
  minimal,    // the settings that differ from their defaults
  annotated,  // every setting with its origin and description
};
enum class ConfigFormat { yaml, json, flags };  // flags: one key=value per line, as -f reads them

struct ShowOptions {
  ConfigView view = ConfigView::resolved;
  ConfigFormat format = ConfigFormat::yaml;
  std::string path;  // a section or setting; empty: everything
};

/// The text, with a final newline. Loading the text of a whole configuration gives the same
/// configuration. Secrets are omitted. Throws Error(config) for an unknown path.
MT_API std::string show_config(const ConfigContainer& config, const SchemaCatalog& catalog,
                               const ShowOptions& options);

}  // namespace mtrain
