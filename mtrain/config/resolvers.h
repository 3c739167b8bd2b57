// The built-in resolvers of interpolation, and functions that resolvers share. Stateless; safe from
// any thread, except that they read the process's environment.
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

/// True for names of variables and files that suggest a secret: HF_TOKEN, api-key.txt. Compares
/// whole words: false for TOKENIZER_DIR.
bool suggests_secret(std::string_view name);
/// Parses a text by the grammar of override values. Throws InterpolationFault.
Node decode_value(std::string_view text);
/// Splits the arguments of a resolver at commas outside of quotes, brackets and braces; empty for a
/// blank text.
std::vector<std::string> split_arguments(std::string_view text);
/// The value of a built-in resolver that reads no other setting; nothing for any other resolver.
/// Throws InterpolationFault.
std::optional<Node> call_resolver(std::string_view name, const std::vector<Node>& arguments,
                                  const InterpolationScope& scope);

}  // namespace mtrain
