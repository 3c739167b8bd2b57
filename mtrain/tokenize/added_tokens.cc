#include "mtrain/tokenize/added_tokens.h"

#include <algorithm>

#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

/// The start of the character before `at`.
size_t char_before(std::string_view text, size_t at) {
  --at;
  while (at > 0 && is_tail_byte(text[at])) --at;
  return at;
}

bool word_at(std::string_view text, size_t at) { return is_word_char(decode_char(text, at).value); }

bool blank_at(std::string_view text, size_t at) {
  return CharTable::get().is(decode_char(text, at).value, kWhiteSpace);
}

}  // namespace

void AddedTokens::sort() {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const auto& a, const auto& b) { return a.id < b.id; });
}

void AddedTokens::finish(const std::function<std::string(const std::string&)>& normalize) {
  sort();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    std::string text = token.normalized ? normalize(token.text) : token.text;
    if (text.empty()) continue;
    by_byte_[token.normalized ? 1 : 0][static_cast<unsigned char>(text[0])].push_back(
        {std::move(text), i});
  }
  for (auto& tables : by_byte_)
    for (auto& entries : tables)
      std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.text.size() > b.text.size();
      });
}

const AddedToken* AddedTokens::find(int32_t id) const {
  auto at =
      std::lower_bound(tokens_.begin(), tokens_.end(), id,
                       [](const AddedToken& token, int32_t wanted) { return token.id < wanted; });
  return at != tokens_.end() && at->id == id ? &*at : nullptr;
}

bool AddedTokens::any(bool normalized, bool with_special) const {
  return std::any_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
    return token.normalized == normalized && (with_special || !token.special);
  });
}

bool AddedTokens::fits(std::string_view text, const AddedToken& token, TextSpan& span,
                       uint32_t done) const {
  if (token.single_word) {
    const bool before = span.begin > 0 && word_at(text, char_before(text, span.begin));
    const bool after = span.end < text.size() && word_at(text, span.end);
    if (before || after) return false;
  }
  while (token.strip_left && span.begin > done && blank_at(text, char_before(text, span.begin)))
    span.begin = static_cast<uint32_t>(char_before(text, span.begin));
  while (token.strip_right && span.end < text.size() && blank_at(text, span.end))
    span.end += decode_char(text, span.end).bytes;
  return true;
}

std::vector<TokenPart> AddedTokens::split(std::string_view text, bool normalized,
                                          bool with_special) const {
  std::vector<TokenPart> out;
  const auto& table = by_byte_[normalized ? 1 : 0];
  uint32_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto& entries = table[static_cast<unsigned char>(text[at])];
    size_t next = at + 1;
    for (const Entry& entry : entries) {
      const AddedToken& token = tokens_[entry.token];
      if ((token.special && !with_special) || !text.substr(at).starts_with(entry.text)) continue;
      TextSpan span{static_cast<uint32_t>(at), static_cast<uint32_t>(at + entry.text.size())};
      next = span.end;
      if (!fits(text, token, span, done)) break;
      if (span.begin > done) out.push_back({{done, span.begin}, -1});
      out.push_back({span, token.id});
      done = span.end;
      next = span.end;
      break;
    }
    at = next;
  }
  if (done < text.size()) out.push_back({{done, static_cast<uint32_t>(text.size())}, -1});
  return out;
}

}  // namespace mtrain::tokenize
