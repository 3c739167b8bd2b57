// Whether a text, such as an error message, contains another one; for all tests.
#pragma once
#include <string_view>

namespace mtrain::testing {

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace mtrain::testing
