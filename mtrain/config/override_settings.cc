#include "mtrain/config/override_settings.h"

#include <algorithm>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/component_names.h"
#include "mtrain/config/operand.h"

namespace mtrain {
namespace {

/// The path that stands for the setting at `path`, or for the one of which `path` is a part.
std::string own_path(const std::string& path, const Node& tree, const SchemaCatalog& catalog) {
  const auto parts = parse_path(path);
  if (!parts || parts->empty()) return path;
  const std::string& section = parts->front();
  std::string whole = join_path("", section);
  std::vector<std::string> prefixes = {""};  // the path in its section, by its number of parts
  for (size_t i = 1; i < parts->size(); ++i) {
    prefixes.push_back(join_path(prefixes.back(), (*parts)[i]));
    whole = join_path(whole, (*parts)[i]);
  }
  const auto chosen = owners_in(tree, section, catalog), any = catalog.all_owners(section);
  for (size_t used = parts->size() - 1; used > 0; --used) {
    const FieldSpec* spec = setting_named(prefixes[used], chosen);
    if (!spec) spec = setting_named(prefixes[used], any);
    if (!spec) continue;
    const bool first = spec->alternative.empty() || spec->path < spec->alternative;
    std::string out = cat(section, ".", first ? spec->path : spec->alternative);
    for (size_t i = used + 1; i < parts->size(); ++i) out = join_path(out, (*parts)[i]);
    return out;
  }
  return whole;
}

void gather(const std::string& key, const Node* value, const Node& tree,
            const SchemaCatalog& catalog, std::set<std::string>& out) {
  if (value && value->is_map()) {
    for (const auto& entry : value->entries())
      gather(join_path(key, entry.key), &entry.value, tree, catalog, out);
    return;
  }
  const bool chooses = key.find_first_of(".[") == std::string::npos && value &&
                       value->is_scalar() && !value->is_null();
  if (!chooses) {
    out.insert(own_path(key, tree, catalog));
    return;
  }
  out.insert(key + "=");
  if (names_type(key, value->as_text(), catalog))
    out.insert(own_path(key + ".type", tree, catalog));
}

}  // namespace

std::vector<std::string> settings_of(const std::string& key, const Node* value, const Node& tree,
                                     const SchemaCatalog& catalog) {
  std::set<std::string> out;
  gather(key, value, tree, catalog, out);
  return {out.begin(), out.end()};
}

}  // namespace mtrain
