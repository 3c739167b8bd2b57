// The value of an override, read. Used by override.cc and the files beside it only.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mtrain/config/override.h"

namespace mtrain {

/// Where a text stands. `exact`: places inside it can be told; else every place in it is `where`.
struct TextOrigin {
  SourcePtr source;
  size_t offset = 0;  // of the text in the source, or in `line`
  Location where;
  bool exact = true;
  std::string_view line =
      {};  // the source's text from `where` on, when it is a line of a longer one

  Location at(size_t position) const;
};

using OverrideValue = std::variant<Node, SweepValue, ListEdit>;

enum class ValueUse : uint8_t {
  plain,   // no functions
  single,  // functions, but one value
  sweep,   // any number of values
  text     // of a setting that is a text: commas belong to it
};

std::optional<OverrideValue> parse_value(std::string_view text, const TextOrigin& origin,
                                         ValueUse use, Report& report);

/// The arguments of a function as they were written; keyword arguments have a name.
struct FunctionArguments {
  std::vector<OverrideValue> positional;
  std::vector<std::pair<std::string, OverrideValue>> named;
};

/// Why a function has no value.
struct FunctionFault {
  std::string message, help;
};

/// What messages call an argument: "command line, argument 4".
std::string argument_name(int argument);

bool is_function(std::string_view name);
/// What is meant by an unknown function, or a list of all.
std::string function_hint(std::string_view name);
/// Throws FunctionFault.
OverrideValue call_function(std::string_view name, FunctionArguments arguments);

/// int(…), float(…), str(…), bool(…) of a scalar, a list, a map or several values. Throws
/// FunctionFault.
OverrideValue cast_value(std::string_view function, OverrideValue value);
/// The values from start up to stop, which is left out. Throws FunctionFault.
std::vector<Node> range_values(const Node& start, const Node& stop, const Node& step);

}  // namespace mtrain
