// Explains syntax errors of YAML. The parser reports where it had to stop, which is often lines
// after the mistake: a bracket that is never closed, a key without its colon. Used in this folder
// only. Stateless functions; safe from any thread.
#pragma once
#include <optional>
#include <string>

#include "mtrain/config/yaml_text.h"

namespace mtrain {

struct YamlMistake {
  size_t offset;  // of the text to change
  std::string message, help;
};

/// Finds the mistake. `offset`: where the parser stopped; `complaint`: its message.
YamlMistake find_yaml_mistake(const TextIndex& text, const std::string& complaint, size_t offset);

/// Finds notation in an unquoted string that is not YAML: "// …", typographic quotes, characters
/// that look like spaces. The offset is relative to the string.
std::optional<YamlMistake> foreign_notation(std::string_view plain);

/// The line that was probably meant where YAML reads a plain string: "steps: 5" for "steps 5",
/// "steps:5" and "steps = 5"; "a: {b: 1}" for "a.b = 1". Empty when the line does not look like a
/// key and its value.
std::string meant_entry(std::string_view line);

}  // namespace mtrain
