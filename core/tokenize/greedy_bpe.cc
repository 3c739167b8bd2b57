#include "mtrain/tokenize/greedy_bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/token_table.h"

namespace mtrain::tokenize {
namespace {

constexpr uint64_t kOddMultiplier = 0x9E3779B97F4A7C15ULL;
constexpr uint64_t kHighBits = 0x8080808080808080ULL;
constexpr uint32_t kNoRank = UINT32_MAX;

uint64_t hash_of(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right)) *
         kOddMultiplier;
}

unsigned byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

bool GreedyBpe::takes(std::string_view word) {
  if (word.empty()) return false;
  size_t at = 1;
  for (; at + 8 <= word.size(); at += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, word.data() + at, 8);
    if ((bytes & kHighBits) != kHighBits) return false;
  }
  for (; at < word.size(); ++at)
    if (byte_at(word, at) < 0x80) return false;
  return true;
}

std::unique_ptr<const GreedyBpe> GreedyBpe::make(const TokenTable& tokens,
                                                 const std::vector<BpeMerge>& merges,
                                                 const std::array<int32_t, 256>& byte_ids) {
  std::unique_ptr<GreedyBpe> out(new GreedyBpe());
  if (!out->learn(tokens, merges)) return nullptr;
  out->build_tree(tokens, byte_ids);
  return out;
}

/// Finds the one way in which each token is made; merges that are no such way never happen, since a token's
/// bytes become it whatever stands around them. False when a merge might come before those of its parts.
bool GreedyBpe::learn(const TokenTable& tokens, const std::vector<BpeMerge>& merges) {
  const auto count = static_cast<size_t>(tokens.size());
  std::vector<char> ours(count);
  size_t expected = 0;
  for (size_t id = 0; id < count; ++id) {
    const bool used = tokens.has(static_cast<int64_t>(id));
    ours[id] = used && takes(tokens.text(static_cast<int32_t>(id)));
    expected += static_cast<size_t>(ours[id]);
  }
  splits_.resize(count);
  const auto bits = static_cast<uint32_t>(std::bit_width(expected * 2 + 64));
  shift_ = 64 - bits;
  live_.resize(size_t{1} << bits);
  filter_shift_ = 64 - (bits + 3);
  filter_.resize((size_t{1} << (bits + 3)) / 64);

  if (!std::is_sorted(merges.begin(), merges.end(),
                      [](const auto& a, const auto& b) { return a.rank < b.rank; }))
    return false;
  auto made = [&](int32_t id) {
    return splits_[static_cast<size_t>(id)].order > 0 || tokens.text(id).size() == 1;
  };
  std::vector<const BpeMerge*> early;
  for (const auto& m : merges) {
    if (!ours[static_cast<size_t>(m.result)]) continue;
    const size_t size = tokens.text(m.left).size() + tokens.text(m.right).size();
    if (size != tokens.text(m.result).size() || m.rank >= kNoRank - 1) return false;
    if (made(m.result)) continue;
    if (!made(m.left) || !made(m.right)) {
      early.push_back(&m);
      continue;
    }
    if (!stayed_apart(m.left, m.right)) continue;
    splits_[static_cast<size_t>(m.result)] = {m.left, m.right, m.rank + 1};
    insert(m.left, m.right, m.rank);
  }
  return std::none_of(early.begin(), early.end(),
                      [&](const BpeMerge* m) { return !made(m->result) && made(m->left) && made(m->right); });
}

void GreedyBpe::build_tree(const TokenTable& tokens, const std::array<int32_t, 256>& byte_ids) {
  struct Entry {
    std::string_view text;
    int32_t id;
  };
  std::vector<Entry> entries;
  for (size_t id = 0; id < splits_.size(); ++id)
    if (splits_[id].order > 0)
      entries.push_back({tokens.text(static_cast<int32_t>(id)), static_cast<int32_t>(id)});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  struct Range {
    size_t node, begin, end, depth;
  };
  nodes_.resize(256);
  std::vector<Range> open;
  for (size_t b = 0, at = 0; b < 256; ++b) {
    nodes_[b].token = byte_ids[b];
    const size_t begin = at;
    while (at < entries.size() && byte_at(entries[at].text, 0) == b) ++at;
    if (at > begin) open.push_back({b, begin, at, 1});
  }
  for (size_t next = 0; next < open.size(); ++next) {  // level by level, so that children lie side by side
    const Range range = open[next];
    nodes_[range.node].first = static_cast<uint32_t>(nodes_.size());
    size_t at = range.begin;
    if (entries[at].text.size() == range.depth) nodes_[range.node].token = entries[at++].id;
    while (at < range.end) {
      const unsigned byte = byte_at(entries[at].text, range.depth);
      const size_t begin = at;
      while (at < range.end && byte_at(entries[at].text, range.depth) == byte) ++at;
      (byte < 0xC0 ? nodes_[range.node].low : nodes_[range.node].high) |= uint64_t{1} << (byte & 63);
      open.push_back({nodes_.size(), begin, at, range.depth + 1});
      nodes_.emplace_back();
    }
  }
}

void GreedyBpe::insert(int32_t left, int32_t right, uint32_t rank) {
  const uint64_t hash = hash_of(left, right);
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  size_t i = hash >> shift_;
  while (live_[i].key != ~uint64_t{0}) i = (i + 1) & (live_.size() - 1);
  live_[i] = {key, rank};
  const uint64_t bit = hash >> filter_shift_;
  filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
}

uint32_t GreedyBpe::rank_of(int32_t left, int32_t right) const {
  const uint64_t hash = hash_of(left, right), bit = hash >> filter_shift_;
  if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return kNoRank;
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  for (size_t i = hash >> shift_;; i = (i + 1) & (live_.size() - 1)) {
    if (live_[i].key == key) return live_[i].rank;
    if (live_[i].key == ~uint64_t{0}) return kNoRank;
  }
}

/// Undoes the merge at the border that happened last; false when both sides are single bytes. `limit`: what
/// ranks below it would have happened before the merge that was undone. Of equal ranks the left one happens
/// first.
bool GreedyBpe::step_back(int32_t& left, int32_t& right, uint32_t& limit) const {
  const Split &a = splits_[static_cast<size_t>(left)], &b = splits_[static_cast<size_t>(right)];
  if (a.order > b.order) {
    limit = a.order - 1;
    left = a.right;
    return true;
  }
  if (b.order == 0) return false;
  limit = b.order;
  right = b.left;
  return true;
}

bool GreedyBpe::apart(int32_t left, int32_t right) const {
  return rank_of(left, right) == kNoRank && stayed_apart(left, right);
}

/// Whether no merge crossed their border before both were there.
bool GreedyBpe::stayed_apart(int32_t left, int32_t right) const {
  uint32_t limit = 0;
  while (step_back(left, right, limit))
    if (rank_of(left, right) < limit) return false;
  return true;
}

/// The tokens that begin here, of less than `most` bytes, the shortest first; the longest of them where there
/// are too many.
size_t GreedyBpe::matches(std::string_view text, size_t most, std::array<Match, kMaxMatches>& out) const {
  size_t count = 0;
  const Node* node = &nodes_[byte_at(text, 0)];
  const size_t end = std::min(text.size(), most - 1);
  for (size_t size = 1; size <= end; ++size) {
    if (node->token >= 0) {
      if (count == kMaxMatches) {
        std::copy(out.begin() + kMaxMatches / 2, out.end(), out.begin());
        count = kMaxMatches / 2;
      }
      out[count++] = {node->token, static_cast<uint32_t>(size)};
    }
    if (size == end) break;
    const unsigned byte = byte_at(text, size);
    const uint64_t bit = uint64_t{1} << (byte & 63);
    size_t child = node->first;
    if (byte < 0xC0) {
      if ((node->low & bit) == 0) break;
      child += static_cast<size_t>(std::popcount(node->low & (bit - 1)));
    } else {
      if ((node->high & bit) == 0) break;
      child += static_cast<size_t>(std::popcount(node->low) + std::popcount(node->high & (bit - 1)));
    }
    node = &nodes_[child];
  }
  return count;
}

void GreedyBpe::encode(std::string_view word, WordTokens& out) const {
  const size_t first = out.ids.size();
  std::array<Match, kMaxMatches> found;
  std::vector<bool> dead;  // borders that no encoding has; most words have none
  size_t most = SIZE_MAX;
  auto take = [&](size_t at, size_t count) -> const Match* {
    while (count > 0) {
      const Match& match = found[--count];
      if (!dead.empty() && dead[at + match.bytes]) continue;
      if (out.ids.size() == first || apart(out.ids.back(), match.id)) return &match;
    }
    return nullptr;
  };
  for (size_t at = 0; at < word.size();) {
    const size_t count = matches(word.substr(at), most, found);
    if (const Match* match = take(at, count)) {
      out.add(match->id, match->bytes);
      at += match->bytes;
      most = SIZE_MAX;
      continue;
    }
    if (count > 0 && found[0].bytes > 1) {  // shorter ones were left out
      most = found[0].bytes;
      continue;
    }
    // The way here is the only one, so no encoding has a border here: another token before it, then.
    MT_CHECK(out.ids.size() > first, "a word without an encoding");
    dead.resize(word.size() + 1);
    dead[at] = true;
    most = out.bytes.back();
    at -= most;
    out.ids.pop_back();
    out.bytes.pop_back();
  }
}

}  // namespace mtrain::tokenize
