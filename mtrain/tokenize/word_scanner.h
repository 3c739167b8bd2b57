// Word scanners: the regular expressions that large models cut text with, each written out by hand,
// many times faster than a regular expression engine and held against one in the tests. Stateless;
// safe from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Named after the first to use it.
enum class KnownPattern : uint8_t {
  none,
  gpt2,    // contractions, then words, numbers and marks, each with the blank before it
  llama3,  // any case of contractions; a mark may begin a word; numbers in threes; line ends stay
           // together
  qwen2,   // the same with single digits
  o200k,   // words end before a capital that follows small letters, and take contractions with them
};

/// Which of them a regular expression is, in the spellings that files hold.
MT_API KnownPattern recognize_pattern(std::string_view regex);
/// The regular expression itself.
MT_API std::string_view pattern_text(KnownPattern pattern);

/// Scans words from `at` on and stores where each ends, up to `capacity` of them; moves `at` behind
/// the last and returns how many. Every byte of the text belongs to a word; bytes that are no UTF-8
/// count as marks.
MT_API size_t scan_words(KnownPattern pattern, std::string_view text, size_t& at, uint32_t* ends,
                         size_t capacity);

}  // namespace mtrain::tokenize
