#include "mtrain/tokenize/word_scanner.h"

#include <array>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2Short =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100k =  // an equivalent pattern, as older tiktoken files spell it
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum Kind : uint8_t { kMarks = 0, kWord = 1, kDigits = 2, kBlank = 3 };

constexpr std::array<uint8_t, 128> kAsciiKinds = [] {
  std::array<uint8_t, 128> out{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    out[c] = letter                                 ? kWord
             : c >= '0' && c <= '9'                 ? kDigits
             : c == ' ' || (c >= '\t' && c <= '\r') ? kBlank
                                                    : kMarks;
  }
  return out;
}();

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), size_(text.size()) {}

  size_t gpt2(size_t at) const {
    const unsigned char c = byte(at);
    if (c == '\'')
      if (size_t length = contraction(at)) return at + length;
    size_t length = 1;
    Kind kind = kind_at(at, length);
    if (c == ' ' && at + 1 < size_) {
      size_t next_length = 1;
      const Kind next = kind_at(at + 1, next_length);
      if (next != kBlank) return run(at + 1 + next_length, next);
    }
    return kind == kBlank ? blanks(at) : run(at + length, kind);
  }

  template <int kMaxDigits>
  size_t llama3(size_t at) const {
    const unsigned char c = byte(at);
    if (c == '\'')
      if (size_t length = contraction_any_case(at)) return at + length;
    size_t length = 1;
    const Kind kind = kind_at(at, length);
    if (kind == kWord) return run(at + length, kWord);
    if (kind == kDigits) {
      size_t end = at + length;
      for (int digits = 1; digits < kMaxDigits && end < size_; ++digits) {
        size_t next = 1;
        if (kind_at(end, next) != kDigits) break;
        end += next;
      }
      return end;
    }
    size_t after = at + length, next_length = 1;
    if (after < size_ && c != '\r' && c != '\n') {
      const Kind next = kind_at(after, next_length);
      if (next == kWord) return run(after + next_length, kWord);
      if (kind == kBlank && c == ' ' && next == kMarks)
        return line_ends(run(after + next_length, kMarks));
    }
    if (kind == kMarks) return line_ends(run(after, kMarks));
    return blanks_by_line(at);
  }

  size_t o200k(size_t at) const {
    const unsigned char c = byte(at);
    size_t length = 1;
    const Kind kind = kind_at(at, length);
    const bool may_begin = kind != kWord && kind != kDigits && c != '\r' && c != '\n';
    const size_t after = at + length;
    for (auto cased : {&Scanner::small_end, &Scanner::capital_end}) {
      size_t end = may_begin && after < size_ ? (this->*cased)(after) : 0;
      if (end == 0) end = (this->*cased)(at);
      if (end > 0) return end < size_ && byte(end) == '\'' ? end + contraction_any_case(end) : end;
    }
    if (kind == kDigits) return llama3<3>(at);
    size_t next_length = 1;
    if (c == ' ' && after < size_ && kind_at(after, next_length) == kMarks)
      return line_ends_and_slashes(run(after + next_length, kMarks));
    return kind == kMarks ? line_ends_and_slashes(run(after, kMarks)) : blanks_by_line(at);
  }

 private:
  /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`: the end of the match, 0 if there
  /// is none.
  size_t small_end(size_t at) const {
    size_t length = 1,
           last = 0;  // last: the position after the last character that may belong to either part
    for (; at < size_; at += length) {
      const Case which = case_at(at, length);
      if (which == kSmall) return small_run(at + length);
      if (which == kNoCase) break;
      if (which == kEither) last = at + length;
    }
    return last;
  }
  /// The length of the second part from here on.
  size_t small_run(size_t at) const {
    size_t length = 1;
    for (; at < size_; at += length) {
      const Case which = case_at(at, length);
      if (which != kSmall && which != kEither) break;
    }
    return at;
  }
  /// The same with `+` and `*` swapped, for capitals alone, if small_end() found nothing.
  size_t capital_end(size_t at) const {
    const size_t begin = at;
    size_t length = 1;
    for (; at < size_ && case_at(at, length) == kCapital;) at += length;
    return at > begin ? at : 0;
  }

  enum Case : uint8_t { kNoCase, kSmall, kCapital, kEither };
  Case case_at(size_t at, size_t& length) const {
    const unsigned char c = byte(at);
    if (c < 0x80) {
      length = 1;
      return c >= 'a' && c <= 'z' ? kSmall : c >= 'A' && c <= 'Z' ? kCapital : kNoCase;
    }
    const auto decoded = decode_char(text_, at);
    length = decoded.bytes;
    const uint16_t bits = table_[decoded.value];
    if ((bits & (kLetter | kMark)) == 0) return kNoCase;
    return bits & kLower ? kSmall : bits & kUpper ? kCapital : kEither;
  }

  unsigned char byte(size_t at) const { return static_cast<unsigned char>(text_[at]); }

  Kind kind_at(size_t at, size_t& length) const {
    const unsigned char c = byte(at);
    if (c < 0x80) return length = 1, static_cast<Kind>(kAsciiKinds[c]);
    auto decoded = decode_char(text_, at);
    length = decoded.bytes;
    const uint16_t bits = table_[decoded.value];
    return bits & kLetter ? kWord : bits & kNumber ? kDigits : bits & kWhiteSpace ? kBlank : kMarks;
  }

  size_t run(size_t at, Kind kind) const {
    while (at < size_) {
      const unsigned char c = byte(at);
      if (c < 0x80) {
        if (kAsciiKinds[c] != kind) return at;
        ++at;
        continue;
      }
      size_t length = 1;
      if (kind_at(at, length) != kind) return at;
      at += length;
    }
    return at;
  }

  /// `'s|'t|'re|'ve|'m|'ll|'d`: the length of the match, 0 if there is none.
  size_t contraction(size_t at) const {
    if (at + 1 >= size_) return 0;
    const unsigned char a = byte(at + 1), b = at + 2 < size_ ? byte(at + 2) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }
  size_t contraction_any_case(size_t at) const {
    if (at + 1 >= size_) return 0;
    const unsigned char a = byte(at + 1) | 32, b = at + 2 < size_ ? byte(at + 2) | 32 : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (byte(at + 1) == 0xC5 && at + 2 < size_ && byte(at + 2) == 0xBF)
      return 3;  // U+017F folds to s
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }

  /// `\s+(?!\S)|\s+`: white space, without its last character if it is longer than one and another
  /// character follows.
  size_t blanks(size_t at) const {
    const size_t end = run(at, kBlank);
    if (end == size_) return end;
    size_t last = end - 1;
    while (is_tail_byte(text_[last])) --last;
    return last > at ? last : end;
  }
  /// The same after `\s*[\r\n]+`.
  size_t blanks_by_line(size_t at) const {
    const size_t end = run(at, kBlank);
    for (size_t i = end; i > at; --i)
      if (text_[i - 1] == '\n' || text_[i - 1] == '\r') return i;
    if (end == size_) return end;
    size_t last = end - 1;
    while (is_tail_byte(text_[last])) --last;
    return last > at ? last : end;
  }
  size_t line_ends(size_t at) const {
    while (at < size_ && (text_[at] == '\r' || text_[at] == '\n')) ++at;
    return at;
  }

  size_t line_ends_and_slashes(size_t at) const {
    while (at < size_ && (text_[at] == '\r' || text_[at] == '\n' || text_[at] == '/')) ++at;
    return at;
  }

  std::string_view text_;
  size_t size_;
  const CharTable& table_ = CharTable::get();
};

template <class Next>
size_t fill_ends(size_t& at, size_t size, uint32_t* ends, size_t capacity, Next next) {
  size_t count = 0;
  for (; count < capacity && at < size; ++count) {
    at = next(at);
    ends[count] = static_cast<uint32_t>(at);
  }
  return count;
}

}  // namespace

KnownPattern recognize_pattern(std::string_view regex) {
  if (regex == kGpt2 || regex == kGpt2Short) return KnownPattern::gpt2;
  if (regex == kLlama3 || regex == kCl100k) return KnownPattern::llama3;
  if (regex == kO200k) return KnownPattern::o200k;
  return regex == kQwen2 ? KnownPattern::qwen2 : KnownPattern::none;
}

std::string_view pattern_text(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::gpt2:
      return kGpt2;
    case KnownPattern::llama3:
      return kLlama3;
    case KnownPattern::qwen2:
      return kQwen2;
    case KnownPattern::o200k:
      return kO200k;
    case KnownPattern::none:
      break;
  }
  return {};
}

size_t scan_words(KnownPattern pattern, std::string_view text, size_t& at, uint32_t* ends,
                  size_t capacity) {
  const Scanner scanner(text);
  switch (pattern) {
    case KnownPattern::gpt2:
      return fill_ends(at, text.size(), ends, capacity, [&](size_t i) { return scanner.gpt2(i); });
    case KnownPattern::llama3:
      return fill_ends(at, text.size(), ends, capacity,
                       [&](size_t i) { return scanner.llama3<3>(i); });
    case KnownPattern::qwen2:
      return fill_ends(at, text.size(), ends, capacity,
                       [&](size_t i) { return scanner.llama3<1>(i); });
    case KnownPattern::o200k:
      return fill_ends(at, text.size(), ends, capacity, [&](size_t i) { return scanner.o200k(i); });
    case KnownPattern::none:
      break;
  }
  MT_CHECK(false, "unknown pattern");
  return 0;
}

}  // namespace mtrain::tokenize
