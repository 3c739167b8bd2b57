#include "mtrain/config/catalog.h"

#include "mtrain/base/error.h"

namespace mtrain {

void SchemaCatalog::add_section(Schema schema) {
  for (auto& known : sections_) {
    if (known.name != schema.name) continue;
    known = std::move(schema);
    return;
  }
  sections_.push_back(std::move(schema));
}

void SchemaCatalog::add_component(const std::string& kind, Schema schema) {
  std::string name = schema.name;
  components_[kind].insert_or_assign(std::move(name), std::move(schema));
}

void SchemaCatalog::add_unusable(const std::string& kind, const std::string& name,
                                 std::string reason, std::string remedy) {
  unusable_.insert_or_assign({kind, name}, Unusable{std::move(reason), std::move(remedy)});
}

const SchemaCatalog::Unusable* SchemaCatalog::unusable(const std::string& kind,
                                                       const std::string& name) const {
  auto found = unusable_.find({kind, name});
  return found == unusable_.end() ? nullptr : &found->second;
}

bool SchemaCatalog::has(const std::string& kind, const std::string& name) const {
  return component(kind, name) != nullptr || unusable_.count({kind, name}) > 0;
}

const Schema* SchemaCatalog::section(std::string_view name) const {
  for (const auto& schema : sections_)
    if (schema.name == name) return &schema;
  return nullptr;
}

const Schema* SchemaCatalog::component(const std::string& kind, const std::string& name) const {
  auto of_kind = components_.find(kind);
  if (of_kind == components_.end()) return nullptr;
  auto found = of_kind->second.find(name);
  return found == of_kind->second.end() ? nullptr : &found->second;
}

std::vector<std::string> SchemaCatalog::components(const std::string& kind) const {
  std::vector<std::string> out;
  if (auto of_kind = components_.find(kind); of_kind != components_.end())
    for (const auto& [name, schema] : of_kind->second) out.push_back(name);
  return out;
}

const std::string& SchemaCatalog::note_of(const std::string& kind) const {
  static const std::string kNone;
  auto found = notes_.find(kind);
  return found == notes_.end() ? kNone : found->second;
}

std::vector<const Schema*> SchemaCatalog::owners(std::string_view section_name,
                                                 const std::string& component_name) const {
  std::vector<const Schema*> out;
  const Schema* core = section(section_name);
  if (!core) return out;
  out.push_back(core);
  if (const Schema* part = component(kind_of(section_name), component_name)) out.push_back(part);
  return out;
}

std::vector<const Schema*> SchemaCatalog::all_owners(std::string_view section_name) const {
  std::vector<const Schema*> out = owners(section_name, "");
  if (auto of_kind = components_.find(kind_of(section_name));
      !out.empty() && of_kind != components_.end())
    for (const auto& [name, schema] : of_kind->second) out.push_back(&schema);
  return out;
}

std::vector<const FieldSpec*> SchemaCatalog::settings_at(std::string_view path,
                                                         const std::string& component_name) const {
  std::vector<const FieldSpec*> out;
  size_t dot = path.find('.');
  if (dot == std::string_view::npos) return out;
  std::string_view name = path.substr(0, dot), setting = path.substr(dot + 1);
  for (const Schema* owner : owners(name, component_name))
    for (const auto& spec : owner->fields)
      if (spec.path == setting) out.push_back(&spec);
  return out;
}

std::string SchemaCatalog::kind_of(std::string_view section_name) const {
  const Schema* schema = section(section_name);
  if (!schema) return {};
  for (const auto& spec : schema->fields)
    if (spec.path == "type") return spec.plugin_kind;
  return {};
}

}  // namespace mtrain
