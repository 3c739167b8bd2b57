// The resolvers that every recipe has. Used by interpolate.cc only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/interpolate.h"

namespace mtrain {

/// Why an interpolation has no value.
struct InterpolationFault {
  std::string message, help;
};

/// Reads a text by the grammar of override values. Throws InterpolationFault.
Node decode_value(std::string_view text);
/// Splits the arguments of a resolver at the commas outside of quotes, brackets and braces; none for a blank
/// text.
std::vector<std::string> split_arguments(std::string_view text);
/// The value of a resolver that needs no other setting; nothing when it is none of these. Throws
/// InterpolationFault.
std::optional<Node> call_resolver(std::string_view name, const std::vector<Node>& arguments,
                                  const InterpolationScope& scope);

}  // namespace mtrain
