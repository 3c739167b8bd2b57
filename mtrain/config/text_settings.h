// Which settings are free strings: in their overrides, commas are part of the text. Stateless; safe
// from any thread.
#pragma once
#include <string>

#include "mtrain/config/catalog.h"

namespace mtrain {

/// True when every owner of the setting at this path declares it as a free string, such as
/// dataset.split=90,10,0; for parse_override().
MT_API bool is_text_setting(const std::string& path, const SchemaCatalog& catalog);

}  // namespace mtrain
