// SchemaCatalog: the schemas of all settings. A value; many readers or one writer.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/config/schema.h"

namespace mtrain {

/// The schemas of all settings: the core's sections and the components of plugins. Filled from
/// bind() and from the schema files of plugins, so checking a recipe runs no plugin code.
class MT_API SchemaCatalog {
 public:
  /// A section of recipes; `schema.name` is its key. When it has a field `type` that names a plugin
  /// kind, a component of that kind extends it, and "optimizer: adamw" is short for "optimizer:
  /// {type: adamw}".
  void add_section(Schema schema);
  /// A component; `schema.name` is the value of `type`. A second one of the same kind and name
  /// replaces the first.
  void add_component(const std::string& kind, Schema schema);
  /// What to add to the message about an unknown component of this kind: the folders searched, the
  /// plugins that failed.
  void explain_kind(const std::string& kind, std::string note) { notes_[kind] = std::move(note); }

  /// Returns help for a setting that does not exist but whose name is known, e.g. from another
  /// program; empty for any other path.
  using Advisor = std::function<std::string(std::string_view path, const SchemaCatalog& catalog)>;
  void set_advisor(Advisor advisor) { advisor_ = std::move(advisor); }
  std::string advice(std::string_view path) const {
    return advisor_ ? advisor_(path, *this) : std::string();
  }

  /// The same for components, by kind and name.
  using ComponentAdvisor = std::function<std::string(std::string_view kind, std::string_view name)>;
  void set_component_advisor(ComponentAdvisor advisor) { component_advisor_ = std::move(advisor); }
  std::string component_advice(std::string_view kind, std::string_view name) const {
    return component_advisor_ ? component_advisor_(kind, name) : std::string();
  }

  /// Adds a component whose plugin exists but cannot be used. A recipe that names it is an error.
  void add_unusable(const std::string& kind, const std::string& name, std::string reason,
                    std::string remedy);
  /// Why a component cannot be used, and how to fix it.
  struct Unusable {
    std::string reason, remedy;
  };
  const Unusable* unusable(const std::string& kind, const std::string& name) const;

  /// True when a component of this name exists, even if it cannot be used.
  bool has(const std::string& kind, const std::string& name) const;

  const std::vector<Schema>& sections() const { return sections_; }
  const Schema* section(std::string_view name) const;
  const Schema* component(const std::string& kind, const std::string& name) const;
  std::vector<std::string> components(const std::string& kind) const;
  const std::string& note_of(const std::string& kind) const;
  /// The schemas that define a section of a recipe: the section's own, then that of the component
  /// of this name. Empty when there is no such section.
  std::vector<const Schema*> owners(std::string_view section, const std::string& component) const;
  /// The same with every component that the section could name.
  std::vector<const Schema*> all_owners(std::string_view section) const;
  /// The descriptions of the setting at a path of a recipe: the section's own, then that of the
  /// component of this name. Empty when there is no such setting.
  std::vector<const FieldSpec*> settings_at(std::string_view path,
                                            const std::string& component) const;
  /// The plugin kind that a section's `type` names; empty when the core owns the section alone.
  std::string kind_of(std::string_view section) const;

 private:
  std::vector<Schema> sections_;
  std::map<std::string, std::map<std::string, Schema>> components_;
  std::map<std::string, std::string> notes_;
  std::map<std::pair<std::string, std::string>, Unusable> unusable_;
  Advisor advisor_;
  ComponentAdvisor component_advisor_;
};

}  // namespace mtrain
