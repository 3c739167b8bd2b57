// The type of an unquoted scalar: the core schema of YAML 1.2
// (https://yaml.org/spec/1.2.2/#103-core-schema), narrowed where YAML 1.1 readers disagree about
// the value: a number with a leading zero (017) and 0o17 are strings. Stateless functions; safe
// from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

enum class NodeKind : uint8_t { null, boolean, integer, number, string, list, map };

/// "an integer", "a list", …
MT_API const char* describe(NodeKind kind);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The kind of an unquoted scalar. An integer or number may still exceed 64 bits; the parsers below
/// check that.
MT_API NodeKind resolve_scalar(std::string_view plain);

/// Parses a decimal or 0x integer; nothing when the text is not an integer or does not fit 64 bits.
MT_API std::optional<int64_t> parse_integer(std::string_view text);
/// Like parse_integer, but also accepts an exponent form that is exactly a whole number: 1e6,
/// 2.5e3.
MT_API std::optional<int64_t> parse_exact_integer(std::string_view text);
/// Parses an integer or a number; nothing when the text is neither or exceeds the range of a
/// double.
MT_API std::optional<double> parse_number(std::string_view text);

/// For a text that other YAML readers parse as a number: what to write instead, e.g. "017" -> "17
/// (or 15 …)". Empty for any other text.
MT_API std::string number_trap(std::string_view text);
/// "true" for yes, on, y …; "false" for no, off, n …; empty otherwise.
MT_API std::string boolean_trap(std::string_view text);

}  // namespace mtrain
