// Composition: merges a recipe and the files of its defaults list into one tree, by Hydra's rules
// (https://hydra.cc/docs/advanced/defaults_list/, …/overriding_packages/): `_self_`, `override`,
// `optional`, null, ???, [a, b], @package, "# @package", interpolated choices; group choices and
// value overrides from the command line. Stateless functions over values; safe from any thread.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/override.h"
#include "mtrain/config/report.h"
#include "mtrain/config/repository.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct Composition;

struct ComposeRequest {
  std::string recipe;               // a file, or the name of one in the search path
  std::optional<std::string> text;  // the recipe itself; `recipe` is then its name in messages
  std::optional<Node> tree;         // `text` as load_yaml() reads it, instead of `text`
  std::vector<std::filesystem::path>
      search_path;  // searched after the recipe's own folder; the first match wins
  std::vector<OverrideText> overrides;
  /// Expands short forms. Called before merging for each override and for the body of each file
  /// that is merged at the root.
  std::function<void(Node& body)> expand;
  /// True when `key=value` chooses the `type` of the section `key`, such as a component. Such an
  /// override sets the type unless a defaults list has a group of that name.
  std::function<bool(const std::string& key, const Node& value)> names_component;
  /// Called before a map with `type: name` is merged into the section `key`. Where the name is that
  /// of another component, it removes the present component's settings.
  std::function<void(Node& tree, const std::string& key, const std::string& name)>
      replace_component;
  /// True for a key of a recipe whose string value names an option of the config group with the
  /// key's name: "mixed_precision: bf16".
  std::function<bool(const std::string& key)> has_presets;
  /// How values of later files merge with those of earlier ones. `tree`: the recipe, merged without
  /// such rules.
  std::function<MergeRules(const Node& tree)> merge_rules;
  /// The default of a setting that is absent from the tree, for edits of lists.
  std::function<std::optional<Node>(const Node& tree, const std::string& path)> default_of;
  /// All names of the setting at a path, the one whose value in the tree counts first; empty where
  /// there is no such setting.
  std::function<std::vector<std::string>(const Composition& so_far, const std::string& path)>
      names_of;
  /// Help for a config group without the chosen option; empty when there is none.
  std::function<std::string(const std::string& key)> advice;
  /// The components that `key=name` on the command line may choose in addition to options.
  std::function<std::vector<std::string>(const std::string& key)> components;
  /// Help for a name that is neither an option nor a component, but known, such as that of a family
  /// of models; empty for any other name.
  std::function<std::string(const std::string& key, const std::string& name)> name_advice;
  /// True for the path of a string setting, whose commas do not separate the values of a sweep.
  std::function<bool(const std::string& path)> is_text;
};

/// One file of the final list, in the order of merging.
struct ComposedFile {
  std::string path, package, file;
  SourcePtr source;  // its text
};

/// One line of the defaults tree, as `config tree` shows it.
struct DefaultsLine {
  int depth = 0;
  std::string entry;  // "db: mysql", "_self_", "server/apache"; on the first line, the recipe
  std::string package, file;  // empty when the entry brings no file
  Location where;             // where it was chosen
  bool dropped = false;       // null, removed, or an optional file that is not there
};

struct Composition {
  Node tree;
  Node sweep;        // the recipe's `sweep:` as written; null when it has none
  std::string raw;   // the recipe's own text
  std::string file;  // the recipe's file; its name when it was given as text
  std::vector<ComposedFile> files;
  std::vector<Location> patches;  // of the overrides in `patch:`, in order
  std::vector<DefaultsLine> defaults;
  std::map<std::string, std::string> choices;  // group -> option
};

/// Returns nothing when the recipe cannot be read. For any other fault, reports it and omits the
/// faulty part.
MT_API std::optional<Composition> compose(const ComposeRequest& request, Report& report);

}  // namespace mtrain
