// What a fuzzed entry point promises for any input. Stateless.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace mtrain::fuzz {

/// Ends the process, which a fuzzer reports with the input, if `promise` does not hold.
inline void want(bool promise, std::string_view what) {
  if (promise) return;
  std::fprintf(stderr, "broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace mtrain::fuzz
