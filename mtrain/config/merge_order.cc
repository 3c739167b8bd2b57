#include "mtrain/config/merge_order.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/component_names.h"
#include "mtrain/config/operand.h"
#include "mtrain/config/override_value.h"

namespace mtrain {

int merge_order(const Composition& composition, const std::vector<OverrideText>& overrides,
                const Location& where) {
  if (!where) return 0;
  const int files = static_cast<int>(composition.files.size());
  auto is_at = [&](const Location& at) {
    return at.source == where.source && at.line == where.line && at.column == where.column;
  };
  // The values of patches and of a recipe's sweep are in a file, but are applied as overrides.
  const auto& patches = composition.patches;
  const auto patch = std::ranges::find_if(patches, is_at);
  if (patch != patches.end()) return files + 1 + static_cast<int>(patch - patches.begin());
  const int last = files + static_cast<int>(patches.size());
  for (size_t i = 0; i < overrides.size(); ++i) {
    const Location& written = overrides[i].written;
    if (written && !overrides[i].exact && is_at(written)) return last + 1 + static_cast<int>(i);
  }
  const bool argument = where.source->kind() == SourceKind::command_line;
  for (int i = files; !argument && i-- > 0;)
    if (composition.files[static_cast<size_t>(i)].file == where.source->name()) return i;
  for (size_t i = 0; i < overrides.size(); ++i) {
    const OverrideText& o = overrides[i];
    if (o.written ? o.written.source == where.source
                  : where.source->name() == argument_name(o.argument))
      return last + 1 + static_cast<int>(i);
  }
  return argument ? last + 1 : last;
}

std::vector<std::string> names_of(const std::string& path, const Composition& composition,
                                  const std::vector<OverrideText>& overrides,
                                  const SchemaCatalog& catalog) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return {};
  const std::string section = path.substr(0, dot);
  const auto owners = owners_in(composition.tree, section, catalog);
  const FieldSpec* own = setting_named(path.substr(dot + 1), owners);
  if (!own) return {};
  std::vector<std::string> names = {own->path};
  const std::string parent = own->path.substr(0, own->path.rfind('.') + 1);
  auto add = [&](const std::string& old) {
    // A former name may be the name of another setting today.
    if (setting_named(old, owners)->path == own->path) names.push_back(old);
  };
  for (const Schema* owner : owners)
    for (const auto& spec : owner->fields) {
      if (spec.path != own->path) continue;
      for (const auto& old : spec.renamed_from) {
        add(old);
        if (!parent.empty()) add(parent + old);
      }
    }
  for (std::string& name : names) name = cat(section, ".", name);
  auto given = [&](const std::string& name) { return composition.tree.find(name); };
  const auto absent = std::stable_partition(names.begin(), names.end(), given);
  if (absent - names.begin() > 1)
    std::stable_sort(names.begin(), absent, [&](const std::string& a, const std::string& b) {
      return merge_order(composition, overrides, given(a)->loc()) >
             merge_order(composition, overrides, given(b)->loc());
    });
  return names;
}

std::string path_in(const Composition& composition, const std::vector<OverrideText>& overrides,
                    const SchemaCatalog& catalog, const std::string& path) {
  const auto names = names_of(path, composition, overrides, catalog);
  return names.empty() ? path : names.front();
}

std::string alternative_in(const Composition& composition,
                           const std::vector<OverrideText>& overrides, const SchemaCatalog& catalog,
                           const std::string& path) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return {};
  const std::string section = path.substr(0, dot);
  const FieldSpec* spec =
      setting_named(path.substr(dot + 1), owners_in(composition.tree, section, catalog));
  if (!spec || spec->alternative.empty()) return {};
  const std::string other =
      path_in(composition, overrides, catalog, cat(section, ".", spec->alternative));
  const Node *mine = composition.tree.find(path), *theirs = composition.tree.find(other);
  if (!mine || !theirs) return {};
  auto order = [&](const Node& node) { return merge_order(composition, overrides, node.loc()); };
  return order(*mine) < order(*theirs) ? other : "";
}

}  // namespace mtrain
