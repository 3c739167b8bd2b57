#include "mtrain/tokenize/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::tokenize {
namespace {

constexpr uint32_t kMatchSteps = 20'000'000;  // per match; real patterns need a few per byte
constexpr uint32_t kHeapKibibytes = 64 * 1024;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Replaces `\s` by the property White_Space, since `\s` of PCRE2 has one more character.
std::string rewritten(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '\\' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 's' || next == 'S')
      out += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    else if (next)
      out.append(pattern, i, 2);
    else
      out += pattern[i];
    if (next) ++i;
  }
  return out;
}

struct MatchState {
  pcre2_match_data* data;
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  explicit MatchState(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
    pcre2_set_match_limit(context, kMatchSteps);
    pcre2_set_heap_limit(context, kHeapKibibytes);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, const std::string& where)
    : pattern_(pattern), code_(std::make_unique<Code>()) {
  const std::string text = rewritten(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  MT_USER_CHECK(code_->code, ErrorClass::data,
                cat(where, ": the regular expression '", printable(pattern),
                    "' is invalid near character ", at, ": ", message_of(error)),
                "fetch the tokenizer's file again");
  pcre2_jit_compile(code_->code,
                    PCRE2_JIT_COMPLETE);  // without JIT support, PCRE2's interpreter is used
}

Regex Regex::literal(const std::string& text) {
  Regex out;
  out.pattern_ = text;
  return out;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

void Regex::each(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  if (!code_) {
    if (pattern_.empty()) return;
    for (size_t at = 0; (at = text.find(pattern_, at)) != std::string_view::npos;
         at += pattern_.size())
      found(at, at + pattern_.size());
    return;
  }
  MatchState state(code_->code);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = PCRE2_NO_UTF_CHECK;
  for (size_t at = 0; at <= text.size();) {
    int count =
        pcre2_match(code_->code, subject, text.size(), at, options, state.data, state.context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      continue;
    }
    if (count == PCRE2_ERROR_NOMATCH) return;
    MT_USER_CHECK(
        count > 0, ErrorClass::data,
        cat("the regular expression '", printable(pattern_),
            "' exceeds the limit of steps at byte ", at, " of a text: ", message_of(count)),
        "shorten the text, or correct the tokenizer's pattern");
    const PCRE2_SIZE* where = pcre2_get_ovector_pointer(state.data);
    if (where[1] > where[0]) found(where[0], where[1]);
    at = where[1];
    if (where[1] == where[0]) {  // an empty match: continue after the next character
      ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    }
  }
}

}  // namespace mtrain::tokenize
