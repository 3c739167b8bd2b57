// YAML's syntax errors in a newcomer's words. The parser names the place where it could not go on,
// which is often lines behind the mistake: a bracket that was never closed, a key without its
// colon. Used within this folder only. Stateless.
#pragma once
#include <optional>
#include <string>

#include "mtrain/config/yaml_text.h"

namespace mtrain {

struct YamlMistake {
  size_t offset;  // of what is to be changed
  std::string message, help;
};

/// What is wrong, where the parser stopped at `offset` with `complaint`.
YamlMistake find_yaml_mistake(const TextIndex& text, const std::string& complaint, size_t offset);

/// What an unquoted text has from another notation than YAML's: "// …", typographic quotes, blanks
/// that are none. The offset is in the text.
std::optional<YamlMistake> foreign_notation(std::string_view plain);

/// The line that was probably meant by one that YAML takes for plain text: "steps: 5" for "steps
/// 5", "steps:5" and "steps = 5". "a: {b: 1}" for "a.b = 1". Empty when it does not look like a key
/// and its value.
std::string meant_entry(std::string_view line);

}  // namespace mtrain
