// Parses the value of an override. Used by override.cc and override_*.cc only. Stateless functions
// over values; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mtrain/config/override.h"

namespace mtrain {

/// The location of a text. `exact`: locations inside it are known; otherwise each of them is
/// `where`.
struct TextOrigin {
  SourcePtr source;
  size_t offset = 0;  // of the text in the source, or in `line`
  Location where;
  bool exact = true;
  std::string_view line =
      {};  // the source's text from `where` on, when the text is a line of a longer one

  Location at(size_t position) const;
};

using OverrideValue = std::variant<Node, SweepValue, ListEdit>;

enum class ValueUse : uint8_t {
  plain,   // no functions
  single,  // functions, but one value
  sweep,   // any number of values
  text     // of a string setting: commas are part of it
};

std::optional<OverrideValue> parse_value(std::string_view text, const TextOrigin& origin,
                                         ValueUse use, Report& report);

/// The arguments of a function in the order of writing; keyword arguments have a name.
struct FunctionArguments {
  std::vector<OverrideValue> positional;
  std::vector<std::pair<std::string, OverrideValue>> named;
};

/// Why a function has no value.
struct FunctionFault {
  std::string message, help;
};

/// The name of an argument in messages: "command line, argument 4".
std::string argument_name(int argument);

bool is_function(std::string_view name);
/// Help for an unknown function: the likely one, or a list of all.
std::string function_hint(std::string_view name);
/// Throws FunctionFault.
OverrideValue call_function(std::string_view name, FunctionArguments arguments);

/// int(…), float(…), str(…), bool(…) of a scalar, a list, a map or several values. Throws
/// FunctionFault.
OverrideValue cast_value(std::string_view function, OverrideValue value);
/// The values from start up to, but excluding, stop. Throws FunctionFault.
std::vector<Node> range_values(const Node& start, const Node& stop, const Node& step);

}  // namespace mtrain
