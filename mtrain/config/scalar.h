// What an unquoted scalar means: the core schema of YAML 1.2
// (https://yaml.org/spec/1.2.2/#103-core-schema), narrowed where YAML 1.1 readers disagree about
// the value: a leading zero (017) and 0o17 stay text. Stateless.
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

/// The kind of an unquoted scalar. An integer or number may still be too big for 64 bits: see the
/// parsers.
MT_API NodeKind resolve_scalar(std::string_view plain);

/// Decimal or 0x text of kind integer; absent when it is none or does not fit.
MT_API std::optional<int64_t> parse_integer(std::string_view text);
/// As parse_integer, and an exponent form that is a whole number exactly: 1e6, 2.5e3.
MT_API std::optional<int64_t> parse_exact_integer(std::string_view text);
/// Text of kind integer or number; absent when it is none or beyond the range of a double.
MT_API std::optional<double> parse_number(std::string_view text);

/// For a text that other readers take for a number or a boolean: what to write instead, e.g. "017"
/// -> "17 (or 15 …)". Empty when the text is no such trap.
MT_API std::string number_trap(std::string_view text);
/// "true" for yes, on, y …; "false" for no, off, n …; empty otherwise.
MT_API std::string boolean_trap(std::string_view text);

}  // namespace mtrain
