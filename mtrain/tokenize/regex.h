// Regex: a regular expression of a tokenizer's file, by PCRE2 with its just-in-time compiler.
// Patterns are written for Oniguruma or Rust's regex crates; differences are rewritten (`\s` is
// Unicode's White_Space). The number of steps is bounded, so catastrophic backtracking is an error,
// not a hang. Immutable; safe from any thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

class MT_API Regex {
 public:
  /// Error(data) with the position in the pattern when it is invalid; `where` names the file.
  Regex(const std::string& pattern, const std::string& where);
  /// Matches only this text, literally.
  static Regex literal(const std::string& text);
  ~Regex();
  Regex(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }
  /// Calls `found(begin, end)` for each match of well-formed UTF-8, from left to right; skips empty
  /// matches. Error(data) when a match takes too many steps.
  void each(std::string_view text, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  Regex() = default;
  std::string pattern_;
  std::unique_ptr<Code> code_;  // null: literal
};

}  // namespace mtrain::tokenize
