#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mtrain::cpu {

/// The decimal integer at the start of `text`; nothing if `text` starts with anything else ("max")
/// or the integer does not fit. Stateless; thread-safe.
inline std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace mtrain::cpu
