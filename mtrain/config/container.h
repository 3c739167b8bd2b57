// ConfigContainer: a recipe made whole. It loads the YAML, applies the overrides, checks every
// section against the schemas of its owners and fills in the defaults; all faults come in one
// report.
//
// A section has a core part, known to mtrain, and, when its `type` names a plugin, a component part
// with that plugin's settings. Each owner is handed only its own keys: section("optimizer") and
// component("optimizer"). Values; many readers or one writer.
#pragma once
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/compose.h"
#include "mtrain/config/override.h"
#include "mtrain/config/report.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// Every setting that can be said: the core's sections and the components of plugins. Filled from
/// bind() and from the schema files beside plugins, so that checking a recipe runs no plugin code.
class MT_API SchemaCatalog {
 public:
  /// A section of recipes; `schema.name` is its key. When it has a field `type` that names a plugin
  /// kind, a component of that kind extends it, and "optimizer: adamw" is short for "optimizer:
  /// {type: adamw}".
  void add_section(Schema schema);
  /// A component; `schema.name` is what `type` says. A second one of the same kind and name
  /// replaces the first.
  void add_component(const std::string& kind, Schema schema);
  /// What to add to the message about an unknown component of this kind: the folders searched, the
  /// plugins that failed.
  void explain_kind(const std::string& kind, std::string note) { notes_[kind] = std::move(note); }

  /// What to do about settings that do not exist but whose names are known, e.g. from other
  /// programs; empty for the rest.
  using Advisor = std::function<std::string(std::string_view path, const SchemaCatalog& catalog)>;
  void set_advisor(Advisor advisor) { advisor_ = std::move(advisor); }
  std::string advice(std::string_view path) const {
    return advisor_ ? advisor_(path, *this) : std::string();
  }

  /// The same for components: the kind and the name.
  using ComponentAdvisor = std::function<std::string(std::string_view kind, std::string_view name)>;
  void set_component_advisor(ComponentAdvisor advisor) { component_advisor_ = std::move(advisor); }
  std::string component_advice(std::string_view kind, std::string_view name) const {
    return component_advisor_ ? component_advisor_(kind, name) : std::string();
  }

  /// A component whose plugin is there but cannot be used. A recipe that names it is at fault.
  void add_unusable(const std::string& kind, const std::string& name, std::string reason,
                    std::string remedy);
  /// Why and what to do about it; null for any other component.
  struct Unusable {
    std::string reason, remedy;
  };
  const Unusable* unusable(const std::string& kind, const std::string& name) const;

  /// True when there is a component of this name, be it one that cannot be used.
  bool has(const std::string& kind, const std::string& name) const;

  const std::vector<Schema>& sections() const { return sections_; }
  const Schema* section(std::string_view name) const;
  const Schema* component(const std::string& kind, const std::string& name) const;
  std::vector<std::string> components(const std::string& kind) const;
  const std::string& note_of(const std::string& kind) const;
  /// Who says what a section of a recipe may hold: the section's own schema, then that of the
  /// component of this name. Empty when there is no such section.
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

struct ConfigRequest {
  std::string recipe;  // a file, or the name of one in the search path; its name in messages when
                       // `text` is given
  std::optional<std::string> text;  // the recipe itself, instead of reading the file
  /// `text` is a resolved recipe, complete with defaults: an override that chooses another
  /// component takes the place of the old one's settings.
  bool resolved = false;
  std::vector<OverrideText> overrides;  // in the order of the command line
  std::vector<std::filesystem::path>
      search_path;  // of config groups, behind the recipe's own folder; first wins
  /// Resolvers beyond those of interpolate.h: "recipe_dir", "run", "world_size".
  std::map<std::string, std::function<Node(const std::vector<Node>& arguments)>> resolvers;
  std::time_t now = std::time(nullptr);  // what ${now:…} shows
};

/// A setting that was said as a part of another one.
struct ConfigShare {
  std::string path, of;  // "scheduler.warmup_steps", "train.steps"
};

class MT_API ConfigContainer {
 public:
  /// Reads and checks everything. The report gets all faults; the container is for use only when
  /// report.ok(), and for reading its values also when `not-built` is the only error.
  static ConfigContainer load(const ConfigRequest& request, const SchemaCatalog& catalog,
                              Report& report);
  /// As load(), and throws Error(config) with the whole report when there is an error.
  static ConfigContainer load_or_throw(const ConfigRequest& request, const SchemaCatalog& catalog);

  /// All sections with every setting, canonical: a section's core part, then its component's.
  const Node& root() const { return root_; }
  /// The same without secrets and with literal "${" escaped: what to_yaml() writes.
  Node resolved() const;
  bool is_secret(std::string_view path) const;
  const std::vector<std::string>& secrets() const { return secrets_; }
  /// The core's own settings of a section, for read_config. Throws Error(bug) for a section that is
  /// not in the catalog.
  const Node& section(std::string_view name) const;
  /// The settings of the section's component, for Registry::make. An empty map when the section has
  /// none.
  const Node& component(std::string_view name) const;
  /// The `type` of a section; empty when it has none.
  std::string type_of(std::string_view section) const;

  /// The path of the setting that publishes a fact, "model.layers"; empty where no component of
  /// this recipe publishes it.
  std::string setting_of(Fact fact) const;
  /// The value of that setting; nothing where there is none, or where it is faulty.
  std::optional<int64_t> fact(Fact fact) const;

  /// Puts what a setting takes for one run in the place of what was written, which becomes its
  /// history. REQUIRES: `path` is a setting of the core's own part of a section, and `value` one of
  /// its values. It takes the place of its alternative (Field::alternative), `instead_of`, and
  /// shares of it are computed again.
  void settle(std::string_view path, Node value, std::string_view instead_of = {});

  /// Gives a setting, whoever owns it, the value that its text stands for, such as the absolute
  /// path of a relative one. The value brings its own place and history.
  void rewrite(std::string_view path, Node value);

  /// The resolved configuration as YAML; loading it again gives the same one. Secrets are left out.
  std::string to_yaml() const;
  /// Tells of each fault of a report what the value at its place replaced.
  void add_shadows(Report& report) const { report.add_shadows(composition_.tree, secrets_); }
  /// The recipe's text as it was read, the files it is composed of, and the overrides.
  const std::string& raw() const { return composition_.raw; }
  const Composition& composition() const { return composition_; }
  const std::vector<OverrideText>& overrides() const { return overrides_; }

 private:
  struct Part {
    Node core, component;
  };
  /// Puts the settings that are computed from others into the tree; false when there are none.
  bool place_derived(const std::map<std::string, const Schema*>& component,
                     const SchemaCatalog& catalog, Report& report);
  void read_section(const Schema& schema, const Schema* component, const Node& given,
                    const KeyIndex& known, const SchemaCatalog& catalog, Report& report);
  /// Computes the shares of a setting, or of all.
  void apply_shares(std::string_view of = {});
  std::map<std::string, Part, std::less<>> parts_;
  Node root_;
  std::vector<std::string> secrets_, derived_;  // paths
  std::map<Fact, std::string> facts_;           // the path that publishes each
  std::vector<ConfigShare> shares_;
  Composition composition_;
  std::vector<OverrideText> overrides_;
};

}  // namespace mtrain
