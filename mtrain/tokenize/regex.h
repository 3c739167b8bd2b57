// Regex: a pattern of a tokenizer's file, by PCRE2 with its just-in-time compiler. Patterns are
// written for Oniguruma or Rust's regex crates; what differs is rewritten (`\s` is Unicode's
// White_Space). The work is bounded: a pattern that explodes ends in an error, not in a hang.
// Immutable; safe from any thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

class MT_API Regex {
 public:
  /// Error(data) with the place in the pattern when it is no regular expression; `where` names the
  /// file.
  Regex(const std::string& pattern, const std::string& where);
  /// Only this text, taken literally.
  static Regex literal(const std::string& text);
  ~Regex();
  Regex(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }
  /// Calls `found(begin, end)` for each match of well-formed UTF-8, from left to right; empty
  /// matches are skipped. Error(data) when the match takes more steps than any real pattern needs.
  void each(std::string_view text, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  Regex() = default;
  std::string pattern_;
  std::unique_ptr<Code> code_;  // null: literal
};

}  // namespace mtrain::tokenize
