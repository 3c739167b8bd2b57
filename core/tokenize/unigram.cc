#include "mtrain/tokenize/unigram.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

constexpr size_t kSettleBytes = size_t{1}
                                << 18;  // how much is kept before what cannot change any more is given out

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
                  "the tokenizer's file is damaged: get it again");
  }
}

/// Lays the sorted tokens out level by level: all children of a node get places that fit its base.
void Unigram::build() {
  std::vector<int32_t> order;
  for (int64_t id = 0; id < tokens_.size(); ++id) {
    const bool never = !options_.never.empty() && options_.never[static_cast<size_t>(id)];
    if (tokens_.has(id) && !never && !tokens_.text(static_cast<int32_t>(id)).empty())
      order.push_back(static_cast<int32_t>(id));
  }
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return tokens_.text(a) < tokens_.text(b); });
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Range> todo{{0, order.size(), 0, 0}};
  nodes_.assign(1024, {});
  nodes_[0].check = UINT32_MAX - 1;  // taken, and nobody's child
  size_t free_from = 1, roomy_from = 1;
  while (!todo.empty()) {
    Range range = todo.back();
    todo.pop_back();
    if (range.begin < range.end && tokens_.text(order[range.begin]).size() == range.depth) {
      nodes_[range.node].id = order[range.begin++];
      longest_ = std::max(longest_, range.depth);
    }
    if (range.begin == range.end) continue;
    std::vector<Range> children;
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto byte = static_cast<unsigned char>(tokens_.text(order[i])[range.depth]);
      if (children.empty() || children.back().node != byte) children.push_back({i, i, range.depth + 1, byte});
      children.back().end = i + 1;
    }
    while (free_from < nodes_.size() && nodes_[free_from].check != UINT32_MAX) ++free_from;
    // Families need several free places at once: those are further on, and need not be looked for from the
    // start.
    size_t& from = children.size() > 1 ? (roomy_from = std::max(roomy_from, free_from)) : free_from;
    for (size_t place = from, tries = 0;; ++place) {
      const auto base = static_cast<uint32_t>(place ^ children[0].node);
      if ((base | 0xFF) >= nodes_.size())
        nodes_.resize(std::max<size_t>(nodes_.size() * 2, (base | 0xFFU) + 1));
      auto taken = [&](const Range& child) { return nodes_[base ^ child.node].check != UINT32_MAX; };
      if (base == 0 || std::any_of(children.begin(), children.end(), taken)) {
        if (++tries > 256 && children.size() > 1) from = place;
        continue;
      }
      nodes_[range.node].base = base;
      for (auto& child : children) {
        child.node ^= base;
        nodes_[child.node].check = range.node;
        todo.push_back(child);
      }
      break;
    }
  }
}

/// Offers every token that begins at `at` to the position where it ends.
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
  uint32_t node = 0;
  for (size_t end = at; end < word.size();) {
    const uint32_t next = nodes_[node].base ^ static_cast<unsigned char>(word[end]);
    if (nodes_[node].base == 0 || next >= nodes_.size() || nodes_[next].check != node) break;
    node = next;
    ++end;
    if (nodes_[node].id < 0) continue;
    offer(end, static_cast<Score>(options_.scores[static_cast<size_t>(nodes_[node].id)]), nodes_[node].id);
    single = single || end - at == char_size;
  }
  if (!single) offer(at + char_size, static_cast<Score>(options_.unknown_score), -1);
}

/// The tokens on the best way from `until` to `end`.
void Unigram::trace(const std::vector<Best>& best, size_t base, size_t end, size_t until,
                    std::vector<Cut>& out) const {
  out.clear();
  for (size_t at = end; at > until; at = best[at - base].begin)
    out.push_back({best[at - base].begin, static_cast<uint32_t>(at), best[at - base].id});
  std::reverse(out.begin(), out.end());
}

/// The last position that every best way to a position from `at` on goes through.
size_t Unigram::settled(const std::vector<Best>& best, size_t base, size_t at) const {
  size_t common = at;
  const size_t last = std::min(at + longest_, base + best.size() - 1);
  for (size_t end = at; end <= last; ++end) {
    if (best[end - base].begin == UINT32_MAX && end != base) continue;
    size_t way = end;
    while (way > common) way = best[way - base].begin;
    // Both ways go down until they meet.
    for (size_t other = common; way != other;) {
      while (other > way) other = best[other - base].begin;
      while (way > other) way = best[way - base].begin;
    }
    common = way;
  }
  return common;
}

void Unigram::emit(std::string_view word, const std::vector<Cut>& cuts, WordTokens& out) const {
  for (size_t i = 0; i < cuts.size(); ++i) {
    Cut cut = cuts[i];
    const bool unknown = cut.id < 0 || cut.id == options_.unknown;
    if (!unknown) {
      out.add(cut.id, cut.end - cut.begin);
      continue;
    }
    while (options_.fuse_unknown && i + 1 < cuts.size() &&
           (cuts[i + 1].id < 0 || cuts[i + 1].id == options_.unknown))
      cut.end = cuts[++i].end;
    if (options_.byte_fallback && tokens_.find(word.substr(cut.begin, cut.end - cut.begin)) < 0) {
      for (uint32_t at = cut.begin; at < cut.end; ++at)
        out.add(byte_ids_[static_cast<unsigned char>(word[at])], 1);
      continue;
    }
    MT_USER_CHECK(options_.unknown, ErrorClass::data,
                  cat("the text '", printable(word.substr(cut.begin, cut.end - cut.begin), 40),
                      "' has no token, and the tokenizer has none for the unknown"),
                  "use a tokenizer whose vocabulary covers the data");
    out.add(*options_.unknown, cut.end - cut.begin);
  }
}

void Unigram::encode(std::string_view word, WordTokens& out) const {
  size_t base = 0;  // the position of best[0]
  std::vector<Best> best(1);
  std::vector<Cut> cuts;
  size_t settle_at = kSettleBytes;
  for (size_t at = 0; at < word.size(); at += std::min(char_bytes(word[at]), word.size() - at)) {
    const size_t need = std::min(at + std::max<size_t>(longest_, 4), word.size()) - base + 1;
    if (best.size() < need) best.resize(std::max(need, std::min(word.size() + 1 - base, best.size() * 2)));
    options_.single_precision ? extend<float>(word, at, best, base) : extend<double>(word, at, best, base);
    if (at < settle_at) continue;
    settle_at = at + kSettleBytes;
    const size_t done = settled(best, base, at);
    if (done == base) continue;
    trace(best, base, done, base, cuts);
    if (options_.fuse_unknown && (cuts.back().id < 0 || cuts.back().id == options_.unknown)) continue;
    emit(word, cuts, out);
    best.erase(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(done - base));
    base = done;
  }
  trace(best, base, word.size(), base, cuts);
  emit(word, cuts, out);
}

}  // namespace mtrain::tokenize
