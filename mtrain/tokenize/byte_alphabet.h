// GPT-2's byte alphabet (Radford et al. 2019): maps each byte to one printable character, so that
// vocabularies are text. Constant tables; safe from any thread.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// The character of each byte.
MT_API const std::array<char32_t, 256>& byte_chars();
/// The byte of a character; -1 when there is none.
MT_API int byte_of_char(char32_t c);
/// Converts characters to bytes. Returns false and leaves `out` unchanged when a character has no
/// byte.
MT_API bool chars_to_bytes(std::string_view chars, std::string& out);
MT_API std::string bytes_to_chars(std::string_view bytes);

}  // namespace mtrain::tokenize
