#include "mtrain/config/null_names.h"

#include <algorithm>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr const char* kNull = "null";

/// True for a written null. An empty value (`type:`) has no text and means the default.
bool written_null(const Node* value) {
  return value && value->is_null() && !value->as_text().empty() && !value->faulty();
}

bool has_null(const FieldSpec& spec, const SchemaCatalog& catalog) {
  if (spec.type != FieldType::string || spec.nullable) return false;
  return std::find(spec.choices.begin(), spec.choices.end(), kNull) != spec.choices.end() ||
         (!spec.plugin_kind.empty() && catalog.component(spec.plugin_kind, kNull));
}

void name_null(Node& value, const std::string& path, const std::string& kind, Report& report) {
  auto& fault = report.error("wrong-type", path, value.loc(),
                             cat(value.as_text(), " without quotes is not a text; the ",
                                 kind.empty() ? "choice" : kind, " is \"null\""));
  if (!value.expression().empty()) fault.note("computed from " + value.expression());
  const bool file = value.loc() && value.loc().source->kind() == SourceKind::file;
  const std::string key = path.substr(path.rfind('.') + 1);
  fault.fix(file ? cat("write ", key, ": \"null\"")
                 : cat("write ", path, "='\"null\"': the shell removes the outer quotes"));
  value = Node::quoted_string(kNull).set_location(value.loc()).adopt_provenance(value);
}

}  // namespace

void name_nulls(Node& tree, const SchemaCatalog& catalog, Report& report) {
  for (const auto& section : catalog.sections()) {
    Node* given = tree.get(section.name);
    if (!given) continue;
    // The short form, `tokenizer: null`.
    const std::string kind = catalog.kind_of(section.name);
    if (written_null(given) && !kind.empty() && catalog.component(kind, kNull)) {
      name_null(*given, section.name, kind, report);
      Node map = Node::map().set_location(given->loc());
      map.append("type", given->loc(), *given);
      *given = std::move(map);
      continue;
    }
    auto check = [&](const Schema& owner) {
      for (const auto& spec : owner.fields) {
        Node* value = given->find(spec.path);
        if (written_null(value) && has_null(spec, catalog))
          name_null(*value, section.name + "." + spec.path, spec.plugin_kind, report);
      }
    };
    check(section);
    const Node* type = given->get("type");
    if (const Schema* component =
            kind.empty() || !type ? nullptr : catalog.component(kind, type->as_text()))
      check(*component);
  }
}

}  // namespace mtrain
