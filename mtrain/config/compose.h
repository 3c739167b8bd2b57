// Composition: from a recipe and its defaults list to one tree, by Hydra's rules
// (https://hydra.cc/docs/advanced/defaults_list/, …/overriding_packages/): `_self_`, `override`,
// `optional`, null, ???, [a, b], @package, "# @package", interpolated choices; group choices and
// value overrides from the command line. Stateless functions over values.
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

struct ComposeRequest {
  std::string recipe;               // a file, or the name of one in the search path
  std::optional<std::string> text;  // the recipe itself; `recipe` is then its name in messages
  std::vector<std::filesystem::path> search_path;  // behind the recipe's own folder; first wins
  std::vector<OverrideText> overrides;
  /// Called for the body of every file that lands at the root, and for every override, before it is
  /// merged: expands short forms.
  std::function<void(Node& body)> expand;
  /// True when `key=value` says a component rather than a config group, where no such option is.
  std::function<bool(const std::string& key, const Node& value)> names_component;
  /// True for a key of a recipe whose text names an option of the group of that name:
  /// "mixed_precision: bf16".
  std::function<bool(const std::string& key)> has_presets;
  /// How values of later files join those of earlier ones; `tree` is what the recipe says without
  /// such rules.
  std::function<MergeRules(const Node& tree)> merge_rules;
  /// The default of a setting that the tree does not say, for edits of lists.
  std::function<std::optional<Node>(const Node& tree, const std::string& path)> default_of;
  /// What to do about a config group that does not have what is chosen of it; empty: nothing is
  /// known.
  std::function<std::string(const std::string& key)> advice;
  /// True for the path of a setting that is a text, whose commas do not separate values.
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
  std::string entry;  // "db: mysql", "_self_", "server/apache"; of the first line, the recipe
  std::string package, file;  // empty when the entry brings no file
  Location where;             // who chose it
  bool dropped = false;       // null, removed, or an optional file that is not there
};

struct Composition {
  Node tree;
  Node sweep;        // the recipe's `sweep:`, as it is written; null when it has none
  std::string raw;   // the recipe's own text
  std::string file;  // the recipe's file; its name when it was given as text
  std::vector<ComposedFile> files;
  std::vector<DefaultsLine> defaults;
  std::map<std::string, std::string> choices;  // group -> option
};

/// Nothing when the recipe cannot be read; other faults go to the report and leave their part out.
MT_API std::optional<Composition> compose(const ComposeRequest& request, Report& report);

}  // namespace mtrain
