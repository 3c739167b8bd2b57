// Overrides: changes of one setting from the command line, in Hydra's grammar
// (https://hydra.cc/docs/advanced/override_grammar/):
//   k=v set   +k=v add   ++k=v set or add   ~k remove   ~k=v remove if equal
// A value is a number, true, false, null, text, 'quoted', [a, b], {k: v}, a function of values (int
// float str bool sort shuffle), an edit of the existing list (append prepend insert remove
// replace), or, where sweeps are allowed, several values (a,b choice range interval glob tag zip).
// Beyond Hydra's grammar, an unquoted value may contain = # ~ & ' " and any UTF-8, and is then a
// string. An item of a list is named by its index, k[0], or by the value of one of its keys,
// k[name=x]. Stateless functions over values; safe from any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// An override as written, with the number of its command-line argument.
struct OverrideText {
  std::string text;  // "key=value"; only the key when `raw` is set
  int argument = 0;  // 0: messages show the text alone
  Location written =
      {};              // its location in a recipe or an override file, when it is not an argument
  bool exact = false;  // the text is in that file byte for byte, so locations inside it are known
  std::optional<std::string> raw = {};  // of `--set KEY VALUE`: the value, taken literally
  bool given = true;  // by the user; false: from a file that the recipe names, such as config.json
  std::string fixed = {};  // the setting, if its file allows no other value
};

/// Several values for one setting.
struct SweepValue {
  enum class Kind : uint8_t { choice, range, interval, glob, zip };
  Kind kind = Kind::choice;
  bool simple = false;                        // written "a,b", not choice(a,b)
  std::vector<Node> values;                   // of a choice or range; the two ends of an interval
  std::vector<Node> limits;                   // of a range: start, stop, step
  bool log = false;                           // of an interval: uniform on a logarithmic scale
  std::vector<std::string> tags;              // without repeats, in order
  std::vector<std::string> include, exclude;  // of a glob
  std::vector<std::string> keys;              // of a zip: its settings
  std::vector<SweepValue> members;            // of a zip: the values of each setting
};

/// An edit of a setting's list.
struct ListEdit {
  enum class Kind : uint8_t { append, prepend, insert, remove, replace };
  Kind kind = Kind::append;
  int64_t index = 0;  // of insert
  std::vector<Node> values;
};

struct Override {
  enum class Kind : uint8_t { set, add, set_or_add, remove };
  Kind kind = Kind::set;
  std::string key;            // the path, or the group with its package
  std::optional<Node> value;  // at most one of these three is set; none for a bare ~k
  std::optional<ListEdit> edit;
  std::optional<SweepValue> sweep;
  Location where;  // the argument
};

/// Parses one argument. On failure, reports an error and returns nothing. Several values are an
/// error unless `sweeps` is set. For a key where `is_text` returns true, commas are part of the
/// string.
MT_API std::optional<Override> parse_override(
    const OverrideText& text, Report& report, bool sweeps = false,
    const std::function<bool(const std::string& key)>& is_text = {});
/// Parses a single value without functions. `offset`: where it starts in the source's text.
MT_API std::optional<Node> parse_override_value(const SourcePtr& source, size_t offset,
                                                Report& report);
/// True for an argument that has the form of an override: key=value, ~key.
MT_API bool looks_like_override(std::string_view argument);
/// The right side of key=value that parse_override reads as this value.
MT_API std::string override_value_text(const Node& value);
/// An override as a line of an override file.
MT_API std::string override_line(const OverrideText& text);

/// The overrides of a file, one per line; skips blank lines and lines that start with '#'. Reports
/// faults.
MT_API std::vector<OverrideText> read_override_file(const std::filesystem::path& path,
                                                    Report& report);
MT_API std::vector<OverrideText> read_override_lines(const SourcePtr& source, Report& report);

/// The default of a setting that is absent from the tree; nothing when there is none.
using DefaultOf = std::function<std::optional<Node>(const std::string& path)>;

/// All names of the setting at a path: the names that are in the tree, the one whose value counts
/// first; then its own name. Empty where there is no such setting.
using NamesOf = std::function<std::vector<std::string>(const std::string& path)>;

/// Applies an override to the tree. Adds a key that the tree lacks; validation checks later whether
/// the key exists. An edit of a list that the tree lacks starts from its default. `+`, `~`,
/// edits and items of lists find a setting by any of its names. Reports faults.
MT_API void apply_override(Node& root, const Override& override, Report& report,
                           const DefaultOf& default_of = {}, const NamesOf& names_of = {});

}  // namespace mtrain
