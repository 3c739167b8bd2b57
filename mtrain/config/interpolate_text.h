// Reads the notation of interpolations. Used by interpolate.cc only. Stateless functions; safe from
// any thread.
#pragma once
#include <cstddef>
#include <string_view>

namespace mtrain {

/// The end of the "${…}" that starts at `begin`; npos when it is not closed. Ignores quoted braces.
size_t closing_brace(std::string_view text, size_t begin);
/// The end of the resolver's name in the text between "${" and "}"; npos for a reference.
size_t resolver_colon(std::string_view body);

}  // namespace mtrain
