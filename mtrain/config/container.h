// ConfigContainer: the complete, checked configuration of a run. load() reads the YAML, applies the
// overrides, checks every section against the schemas of its owners and fills in the defaults. It
// collects all faults in one report.
//
// A section has a core part, which mtrain defines, and, when its `type` names a plugin, a component
// part with that plugin's settings. Each owner sees only its own keys: section("optimizer") and
// component("optimizer"). The types of this file are values that own their data. Not synchronised:
// many readers or one writer.
#pragma once
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/catalog.h"
#include "mtrain/config/compose.h"
#include "mtrain/config/override.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct ConfigRequest {
  std::string recipe;  // a file, or the name of one in the search path; when `text` is given, only
                       // its name in messages
  std::optional<std::string> text;  // the recipe itself, instead of reading the file
  /// `text` as load_yaml() reads it, instead of `text`: saves reading it again for each request.
  std::optional<Node> tree;
  /// `text` is a resolved recipe, complete with defaults: an override that chooses another
  /// component also removes the old component's settings.
  bool resolved = false;
  std::vector<OverrideText> overrides;  // in the order of the command line
  std::vector<std::filesystem::path>
      search_path;  // of config groups, after the recipe's own folder; the first match wins
  /// Resolvers beyond those of interpolate.h: "recipe_dir", "run", "world_size".
  std::map<std::string, std::function<Node(const std::vector<Node>& arguments)>> resolvers;
  std::time_t now = std::time(nullptr);  // the time for ${now:…}
};

/// A setting whose value is a percentage of another one.
struct ConfigShare {
  std::string path, of;  // "scheduler.warmup_steps", "train.steps"
};

class MT_API ConfigContainer {
 public:
  /// Reads and checks everything, and reports all faults. Use the container only when report.ok();
  /// its values may also be read when `not-built` is the only kind of error.
  static ConfigContainer load(const ConfigRequest& request, const SchemaCatalog& catalog,
                              Report& report);
  /// Like load(), but throws Error(config) with the whole report when there is an error.
  static ConfigContainer load_or_throw(const ConfigRequest& request, const SchemaCatalog& catalog);

  /// All sections with every setting in canonical form: the section's core part, then its
  /// component's.
  const Node& root() const { return root_; }
  /// The same without secrets and with literal "${" escaped. to_yaml() writes this tree.
  Node resolved() const;
  bool is_secret(std::string_view path) const;
  /// The paths of the settings for which is_secret() is true.
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
  std::string setting_of(Fact fact) const {
    auto found = facts_.find(fact);
    return found == facts_.end() ? std::string() : found->second;
  }
  /// The value of that setting; nothing where there is none, or where it is faulty.
  std::optional<int64_t> fact(Fact fact) const {
    const Node* node = root_.find(setting_of(fact));
    const bool valid = node && node->kind() == NodeKind::integer && !node->faulty();
    return valid ? std::optional(node->as_int()) : std::nullopt;
  }

  /// Replaces the written value of a setting by the value that this run uses; the written value
  /// becomes its history. Removes `instead_of`, the setting's alternative (Field::alternative), and
  /// recomputes the settings that are percentages of it. REQUIRES: `path` is in the core part of a
  /// section, and `value` is valid for it.
  void resolve(std::string_view path, Node value, std::string_view instead_of = {});

  /// Replaces the value of a setting of the core or of a component by an equivalent one, such as a
  /// relative path by an absolute path. The value brings its own location and history.
  void rewrite(std::string_view path, Node value);

  /// The resolved configuration as YAML; loading it gives the same configuration. Secrets are
  /// omitted.
  std::string to_yaml() const;
  /// Adds to each fault of a report the value that the faulty one replaced.
  void add_shadows(Report& report) const { report.add_shadows(composition_.tree, secrets_); }
  /// The recipe's text as it was read; the files it is composed of; the overrides.
  const std::string& raw() const { return composition_.raw; }
  const Composition& composition() const { return composition_; }
  /// The path in composition().tree whose value counts instead of the one at `path`, because it was
  /// merged later: another name of the setting, or its alternative. "" where none does.
  std::string replaced_by(const std::string& path, const SchemaCatalog& catalog) const;
  const std::vector<OverrideText>& overrides() const { return overrides_; }

 private:
  struct Part {
    Node core, component;
  };
  /// Adds the settings that are computed from others to the tree; false when there are none.
  bool place_derived(const std::map<std::string, const Schema*>& component,
                     const SchemaCatalog& catalog, Report& report);
  void read_section(const Schema& schema, const Schema* component, const Node& given,
                    const KeyIndex& known, const SchemaCatalog& catalog, Report& report);
  /// Computes the settings that are percentages of `of`, or of any setting when it is empty.
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
