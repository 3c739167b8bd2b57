// GPT-2's alphabet of bytes (Radford et al. 2019): each byte as one printable character, so that
// vocabularies are text. Constant tables; safe from any thread.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// The character that stands for each byte.
MT_API const std::array<char32_t, 256>& byte_chars();
/// The byte that a character stands for; -1 when none.
MT_API int byte_of_char(char32_t c);
/// Characters to bytes. False, and `out` as it was, when a character stands for none.
MT_API bool chars_to_bytes(std::string_view chars, std::string& out);
MT_API std::string bytes_to_chars(std::string_view bytes);

}  // namespace mtrain::tokenize
