// A count with its noun in singular or plural, for messages. Stateless; thread-safe.
#pragma once
#include <concepts>
#include <string>
#include <string_view>

#include "mtrain/base/text.h"

namespace mtrain {

/// 1 and "step" -> "1 step", 2 -> "2 steps". `more`: an irregular plural.
template <std::integral Count>
std::string counted(Count n, std::string_view one, std::string_view more = {}) {
  if (n == 1) return cat(n, " ", one);
  return more.empty() ? cat(n, " ", one, "s") : cat(n, " ", more);
}

}  // namespace mtrain
