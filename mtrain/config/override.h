// Overrides: one setting changed from the command line, in Hydra's form
// (https://hydra.cc/docs/advanced/override_grammar/):
//   k=v set   +k=v add   ++k=v set or add   ~k remove   ~k=v remove if equal
// A value is a number, true, false, null, text, 'quoted', [a, b], {k: v}, a function of values (int
// float str bool sort shuffle), an edit of the list that is there (append prepend insert remove
// replace), or, where sweeps are asked for, several values (a,b choice range interval glob tag
// zip). Wider than Hydra: an unquoted value may hold = # ~ & ' " and any UTF-8, and is then text.
// An item of a list is named by its index, k[0], or by a key of it, k[name=x]. Stateless functions
// over values.
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

/// An argument as it was given, with its number on the command line.
struct OverrideText {
  std::string text;  // "key=value"; the key alone when `raw` is there
  int argument = 0;
  Location written =
      {};  // where it stands when it is no argument: in a recipe or a file of overrides
  bool exact =
      false;  // the text is in that file byte for byte, so that places inside it can be shown
  std::optional<std::string> raw = {};  // of `--set KEY VALUE`: the value, taken as it is
};

/// Several values for one setting.
struct SweepValue {
  enum class Kind : uint8_t { choice, range, interval, glob, zip };
  Kind kind = Kind::choice;
  bool simple = false;                        // written "a,b", not choice(a,b)
  std::vector<Node> values;                   // of a choice or range; of an interval its two ends
  std::vector<Node> limits;                   // of a range: start, stop, step
  bool log = false;                           // of an interval: even on a logarithmic scale
  std::vector<std::string> tags;              // without repeats, in order
  std::vector<std::string> include, exclude;  // of a glob
  std::vector<std::string> keys;              // of a zip: its settings,
  std::vector<SweepValue> members;            // and the values of each
};

/// A change of the list that a setting has.
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
  std::optional<Node> value;  // one of these three; none for a bare ~k
  std::optional<ListEdit> edit;
  std::optional<SweepValue> sweep;
  Location where;  // the argument
};

/// Reads one argument; nothing when the report got an error. Several values are an error unless
/// `sweeps`, but for a key of which `is_text` says that its value is a text: that may hold commas.
MT_API std::optional<Override> parse_override(
    const OverrideText& text, Report& report, bool sweeps = false,
    const std::function<bool(const std::string& key)>& is_text = {});
/// Reads a value alone, without functions. `offset`: where it starts in the source's text.
MT_API std::optional<Node> parse_override_value(const SourcePtr& source, size_t offset,
                                                Report& report);
/// True for an argument that has the form of an override: key=value, ~key.
MT_API bool looks_like_override(std::string_view argument);
/// A value as parse_override reads it back: the right side of key=value.
MT_API std::string override_value_text(const Node& value);
/// An override as a line of a file of overrides.
MT_API std::string override_line(const OverrideText& text);

/// The overrides of a file, one a line; blank lines and lines that start with '#' are left out.
/// Faults go to the report.
MT_API std::vector<OverrideText> read_override_file(const std::filesystem::path& path,
                                                    Report& report);
MT_API std::vector<OverrideText> read_override_lines(const SourcePtr& source, Report& report);

/// The default of a setting that the tree does not say; nothing when there is none.
using DefaultOf = std::function<std::optional<Node>(const std::string& path)>;

/// Changes the tree. A key that the tree lacks is put there, and validation says whether it is one;
/// an edit of a list that the tree lacks starts from its default. Faults go to the report.
MT_API void apply_override(Node& root, const Override& override, Report& report,
                           const DefaultOf& default_of = {});

}  // namespace mtrain
