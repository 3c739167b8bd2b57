// Word scanners: hand-written code for the regular expressions that large models use to split text.
// They are many times faster than a regular expression engine; the tests compare them with one.
// Stateless; safe from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Named after the first model that uses the pattern.
enum class KnownPattern : uint8_t {
  none,
  gpt2,    // contractions, then words, numbers and punctuation, each with the space before it
  llama3,  // contractions in any case; a punctuation character may begin a word; groups of up to
           // three digits; line ends stay together
  qwen2,   // the same with single digits
  o200k,   // words end before a capital after small letters, and include contractions
};

/// The pattern of a regular expression, in the spellings that occur in files.
MT_API KnownPattern recognize_pattern(std::string_view regex);
/// The regular expression of a pattern.
MT_API std::string_view pattern_text(KnownPattern pattern);

/// Scans up to `capacity` words from `at` on and stores their ends; advances `at` past the last
/// word and returns their number. Every byte of the text belongs to a word; bytes that are not
/// UTF-8 count as punctuation.
MT_API size_t scan_words(KnownPattern pattern, std::string_view text, size_t& at, uint32_t* ends,
                         size_t capacity);

}  // namespace mtrain::tokenize
