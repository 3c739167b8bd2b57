// A configuration as it is shown: which of its settings, with what beside them, in which notation.
// Stateless.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

enum class ConfigView {
  resolved,   // every setting with its value
  raw,        // what recipe and overrides say, expressions as they are written
  minimal,    // what differs from the defaults
  annotated,  // every setting, with its origin and meaning beside it
};
enum class ConfigFormat { yaml, json, flags };  // flags: one key=value a line, as -f reads them

struct ShowOptions {
  ConfigView view = ConfigView::resolved;
  ConfigFormat format = ConfigFormat::yaml;
  std::string path;  // of a section or setting; empty: everything
};

/// The text, ending in a line end. Loading what is shown of a whole configuration gives the same
/// one. Secrets are left out. Throws Error(config) for an unknown path.
MT_API std::string show_config(const ConfigContainer& config, const SchemaCatalog& catalog,
                               const ShowOptions& options);

}  // namespace mtrain
