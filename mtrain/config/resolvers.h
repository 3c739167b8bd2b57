// The resolvers that every recipe has, and what resolvers share.
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

/// True for names of variables and files that tell of a secret: HF_TOKEN, api-key.txt. Words count,
/// not parts of them: TOKENIZER_DIR tells of none.
bool suggests_secret(std::string_view name);
/// Reads a text by the grammar of override values. Throws InterpolationFault.
Node decode_value(std::string_view text);
/// Splits the arguments of a resolver at the commas outside of quotes, brackets and braces; none
/// for a blank text.
std::vector<std::string> split_arguments(std::string_view text);
/// The value of a resolver that needs no other setting; nothing when it is none of these. Throws
/// InterpolationFault.
std::optional<Node> call_resolver(std::string_view name, const std::vector<Node>& arguments,
                                  const InterpolationScope& scope);

}  // namespace mtrain
