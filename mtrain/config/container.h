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
  std::vector<ConfigShare> shares_;
  Composition composition_;
  std::vector<OverrideText> overrides_;
};

}  // namespace mtrain
