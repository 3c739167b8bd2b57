#include "mtrain/config/text_settings.h"

namespace mtrain {

bool is_text_setting(const std::string& path, const SchemaCatalog& catalog) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return false;
  bool found = false;
  for (const Schema* owner : catalog.all_owners(path.substr(0, dot)))
    for (const auto& spec : owner->fields) {
      if (spec.path != path.substr(dot + 1)) continue;
      if (spec.type != FieldType::string || !spec.choices.empty()) return false;
      found = true;
    }
  return found;
}

}  // namespace mtrain
