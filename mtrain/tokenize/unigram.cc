#include "mtrain/tokenize/unigram.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

constexpr size_t kSettleBytes =
    size_t{1} << 18;  // positions that are kept before tokens that cannot change are output

}  // namespace

Unigram::Unigram(const TokenTable& tokens, UnigramOptions options, const std::string& where)
    : tokens_(tokens), options_(std::move(options)) {
  MT_CHECK_EQ(options_.scores.size(), static_cast<size_t>(tokens.size()));
  build();
  if (!options_.byte_fallback) return;
  for (unsigned b = 0; b < 256; ++b) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", b);
    byte_ids_.push_back(tokens.find(name.data()));
    MT_USER_CHECK(byte_ids_.back() >= 0, ErrorClass::data,
                  cat(where, ": byte_fallback is on, but there is no token ", name.data()),
                  "the tokenizer's file is damaged: fetch it again");
  }
}

void Unigram::build() {
  std::vector<ByteTrie::Entry> entries;
  for (int64_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool never = !options_.never.empty() && options_.never[static_cast<size_t>(i)];
    if (!tokens_.has(i) || never || tokens_.text(id).empty()) continue;
    entries.push_back({tokens_.text(id), id});
    longest_ = std::max(longest_, tokens_.text(id).size());
  }
  trie_ = ByteTrie(std::move(entries));
}

/// Relaxes the end position of every token that begins at `at`.
template <class Score>
void Unigram::extend(std::string_view word, size_t at, std::vector<Best>& best, size_t base) const {
  const auto here = static_cast<Score>(best[at - base].score);
  const size_t char_size = std::min(char_bytes(word[at]), word.size() - at);
  bool single = false;
  auto offer = [&](size_t end, Score score, int32_t id) {
    Best& target = best[end - base];
    const Score sum = here + score;
    if (target.begin != UINT32_MAX && !(sum > static_cast<Score>(target.score))) return;
    target = {static_cast<double>(sum), static_cast<uint32_t>(at), id};
  };
  uint32_t node = ByteTrie::kRoot;
  for (size_t end = at;
       end < word.size() && trie_.step(node, static_cast<unsigned char>(word[end]));) {
    ++end;
    if (!trie_.is_text(node)) continue;
    const int32_t id = trie_.value(node);
    offer(end, static_cast<Score>(options_.scores[static_cast<size_t>(id)]), id);
    single = single || end - at == char_size;
  }
  if (!single) offer(at + char_size, static_cast<Score>(options_.unknown_score), -1);
}

/// Appends the tokens of the best path from `until` to `end`.
void Unigram::trace(const std::vector<Best>& best, size_t base, size_t end, size_t until,
                    std::vector<PathToken>& out) const {
  out.clear();
  for (size_t at = end; at > until; at = best[at - base].begin)
    out.push_back({best[at - base].begin, static_cast<uint32_t>(at), best[at - base].id});
  std::reverse(out.begin(), out.end());
}

/// The last position that is on every best path to a position from `at` on.
size_t Unigram::settled(const std::vector<Best>& best, size_t base, size_t at) const {
  size_t common = at;
  const size_t last = std::min(at + longest_, base + best.size() - 1);
  for (size_t end = at; end <= last; ++end) {
    if (best[end - base].begin == UINT32_MAX && end != base) continue;
    size_t left = end;
    while (left > common) left = best[left - base].begin;
    // Follow both paths back to their common position.
    for (size_t other = common; left != other;) {
      while (other > left) other = best[other - base].begin;
      while (left > other) left = best[left - base].begin;
    }
    common = left;
  }
  return common;
}

void Unigram::emit(std::string_view word, const std::vector<PathToken>& path,
                   WordTokens& out) const {
  for (size_t i = 0; i < path.size(); ++i) {
    PathToken token = path[i];
    const bool unknown = token.id < 0 || token.id == options_.unknown;
    if (!unknown) {
      out.add(token.id, token.end - token.begin);
      continue;
    }
    while (options_.fuse_unknown && i + 1 < path.size() &&
           (path[i + 1].id < 0 || path[i + 1].id == options_.unknown))
      token.end = path[++i].end;
    if (options_.byte_fallback &&
        tokens_.find(word.substr(token.begin, token.end - token.begin)) < 0) {
      for (uint32_t at = token.begin; at < token.end; ++at)
        out.add(byte_ids_[static_cast<unsigned char>(word[at])], 1);
      continue;
    }
    MT_USER_CHECK(
        options_.unknown, ErrorClass::data,
        cat("the text '", printable(word.substr(token.begin, token.end - token.begin), 40),
            "' cannot be encoded, and the tokenizer has no unknown token"),
        "use a tokenizer whose vocabulary covers the data");
    out.add(*options_.unknown, token.end - token.begin);
  }
}

void Unigram::encode(std::string_view word, WordTokens& out) const {
  size_t base = 0;  // the position of best[0]
  std::vector<Best> best(1);
  std::vector<PathToken> path;
  size_t settle_at = kSettleBytes;
  for (size_t at = 0; at < word.size(); at += std::min(char_bytes(word[at]), word.size() - at)) {
    const size_t need = std::min(at + std::max<size_t>(longest_, 4), word.size()) - base + 1;
    if (best.size() < need)
      best.resize(std::max(need, std::min(word.size() + 1 - base, best.size() * 2)));
    options_.single_precision ? extend<float>(word, at, best, base)
                              : extend<double>(word, at, best, base);
    if (at < settle_at) continue;
    settle_at = at + kSettleBytes;
    const size_t done = settled(best, base, at);
    if (done == base) continue;
    trace(best, base, done, base, path);
    if (options_.fuse_unknown && (path.back().id < 0 || path.back().id == options_.unknown))
      continue;
    emit(word, path, out);
    best.erase(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(done - base));
    base = done;
  }
  trace(best, base, word.size(), base, path);
  emit(word, path, out);
}

}  // namespace mtrain::tokenize
