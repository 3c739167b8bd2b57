// Overrides: one setting changed from the command line, in Hydra's form
// (https://hydra.cc/docs/advanced/override_grammar/):
//   k=v set   +k=v add   ++k=v set or add   ~k remove   ~k=v remove if equal
// A value is a number, true, false, null, text, 'quoted', [a, b] or {k: v}. Wider than Hydra: an unquoted
// value may hold = # ~ & ' " and any UTF-8, and is then text. Stateless functions over values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// An argument as it was given, with its number on the command line.
struct OverrideText {
  std::string text;
  int argument = 0;
  Location written = {};  // where it stands when it is no argument: in the `patch` of a recipe
};

struct Override {
  enum class Kind : uint8_t { set, add, set_or_add, remove };
  Kind kind = Kind::set;
  std::string key;            // the path, or the group with its package
  std::optional<Node> value;  // absent for a bare ~k
  Location where;             // the argument
};

/// Reads one argument; nothing when the report got an error.
MT_API std::optional<Override> parse_override(const OverrideText& text, Report& report);
/// Reads a value alone. `offset`: where it starts in the source's text.
MT_API std::optional<Node> parse_override_value(const SourcePtr& source, size_t offset, Report& report);
/// True for an argument that has the form of an override: key=value, ~key.
MT_API bool looks_like_override(std::string_view argument);

/// Changes the tree. A key that the tree lacks is put there, and validation says
/// whether it is one. Faults go to the report.
MT_API void apply_override(Node& root, const Override& override, Report& report);

}  // namespace mtrain
