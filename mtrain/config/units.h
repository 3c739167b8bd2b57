// Numbers with a magnitude and a unit: 4k, 128Ki, 1.5B_tokens, 500steps, 30m. The result is in the
// setting's own unit: "30m" is 30 for a setting in minutes, 1800 for one in seconds, and an error
// for one in steps. Stateless; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// A parsed number with a unit.
struct Quantity {
  std::optional<int64_t> whole;  // set when the value is exactly a whole number and fits 64 bits
  double value = 0;
  bool too_large = false;  // a whole number that exceeds 64 bits
  std::string fault,
      help;  // set for a unit of another dimension or an unknown unit; then there is no value
  bool likely = false;  // `help` names the probable meaning
};

/// Parses a number followed by letters; nothing for any other text. `unit`: the setting's,
/// "tokens", "s", "min", "bytes", "" …
MT_API std::optional<Quantity> parse_quantity(std::string_view text, std::string_view unit);

}  // namespace mtrain
