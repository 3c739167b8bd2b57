// Numbers with a magnitude and a unit: 4k, 128Ki, 1.5B_tokens, 500steps, 30m. What counts is the
// setting's own unit: "30m" is 30 for a setting in minutes, 1800 for one in seconds, and an error
// for one in steps. Stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// The number that a text means.
struct Quantity {
  std::optional<int64_t> whole;  // when it is a whole number exactly and fits 64 bits
  double value = 0;
  bool too_large = false;   // whole, but beyond 64 bits
  std::string fault, help;  // of another dimension, or no such unit; then there is no number
  bool likely = false;      // whether `help` names what was meant
};

/// Nothing when the text is no number followed by letters. `unit` of the setting: "tokens", "s",
/// "min", "bytes",
/// "" …
MT_API std::optional<Quantity> parse_quantity(std::string_view text, std::string_view unit);

}  // namespace mtrain
