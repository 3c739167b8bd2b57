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

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
uint64_t hash_of(int32_t left, int32_t right) {
  return key_of(left, right) * kOddMultiplier;
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
  for (size_t i = 0; i < merges.size(); ++i)
    if ((i > 0 && merges[i].rank < merges[i - 1].rank) || merges[i].rank >= kOdd - 1) return nullptr;
  std::unique_ptr<GreedyBpe> out(new GreedyBpe());
  out->learn(tokens, merges);
  out->build_tree(tokens, byte_ids);
  return out;
}

bool GreedyBpe::made(const TokenTable& tokens, int32_t id) const {
  return splits_[static_cast<size_t>(id)].order > 0 || tokens.text(id).size() == 1;
}

void GreedyBpe::make_room(size_t tokens) {
  const auto bits = static_cast<uint32_t>(std::bit_width(tokens * 2 + 64));
  shift_ = 64 - bits;
  live_.resize(size_t{1} << bits);
  filter_shift_ = 64 - (bits + 3);
  filter_.resize((size_t{1} << (bits + 3)) / 64);
}

/// Finds the one way in which each token is made; other merges to it never happen, since a token's bytes
/// become it whatever stands around them.
void GreedyBpe::learn(const TokenTable& tokens, const std::vector<BpeMerge>& merges) {
  std::vector<const BpeMerge*> ours;
  std::vector<char> ends_ours(static_cast<size_t>(tokens.size()));
  for (int64_t id = 0; id < tokens.size(); ++id)
    ends_ours[static_cast<size_t>(id)] = tokens.has(id) && takes(tokens.text(static_cast<int32_t>(id)));
  for (const auto& m : merges)
    if (ends_ours[static_cast<size_t>(m.result)]) ours.push_back(&m);
  splits_.resize(static_cast<size_t>(tokens.size()));
  make_room(ours.size());
  std::vector<const BpeMerge*> early;  // than those of their parts
  for (const BpeMerge* m : ours) {
    if (made(tokens, m->result)) continue;
    if (!made(tokens, m->left) || !made(tokens, m->right)) {
      early.push_back(m);
      insert(*m, true);
      continue;
    }
    const Border border = border_before(m->left, m->right);
    if (border == Border::crossed) continue;
    const bool odd = border == Border::unsure;
    splits_[static_cast<size_t>(m->result)] = {m->left, m->right, odd ? kOdd : m->rank + 1};
    insert(*m, odd);
  }
  settle(tokens, early);
}

/// Early merges may happen when nothing else makes their token; the others never do.
void GreedyBpe::settle(const TokenTable& tokens, const std::vector<const BpeMerge*>& early) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const BpeMerge* m : early) {
      if (made(tokens, m->result) || !made(tokens, m->left) || !made(tokens, m->right)) continue;
      splits_[static_cast<size_t>(m->result)] = {m->left, m->right, kOdd};
      changed = true;
    }
  }
  for (const BpeMerge* m : early)
    if (splits_[static_cast<size_t>(m->result)].order != kOdd) place(m->left, m->right).order = kNone;
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

const GreedyBpe::Live& GreedyBpe::find(int32_t left, int32_t right) const {
  static constexpr Live kNothing{};
  const uint64_t hash = hash_of(left, right), bit = hash >> filter_shift_;
  if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return kNothing;
  const uint64_t key = key_of(left, right);
  for (size_t i = hash >> shift_;; i = (i + 1) & (live_.size() - 1)) {
    if (live_[i].key == key) return live_[i];
    if (live_[i].key == ~uint64_t{0}) return kNothing;
  }
}

/// Where a merge is or would be.
GreedyBpe::Live& GreedyBpe::place(int32_t left, int32_t right) {
  const uint64_t key = key_of(left, right);
  size_t i = hash_of(left, right) >> shift_;
  while (live_[i].key != ~uint64_t{0} && live_[i].key != key) i = (i + 1) & (live_.size() - 1);
  return live_[i];
}

void GreedyBpe::insert(const BpeMerge& merge, bool odd) {
  Live& live = place(merge.left, merge.right);
  if (live.key != ~uint64_t{0}) return;  // said twice: the earlier one holds
  live = {key_of(merge.left, merge.right), merge.rank + 1, odd};
  const uint64_t bit = hash_of(merge.left, merge.right) >> filter_shift_;
  filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
}

/// Whether these tokens, side by side, stay as they are.
GreedyBpe::Border GreedyBpe::border(int32_t left, int32_t right) const {
  const Live& both = find(left, right);
  if (both.order == kNone) return border_before(left, right);
  return !both.odd || border_before(left, right) == Border::crossed ? Border::crossed : Border::unsure;
}

/// Whether no merge crossed their border before both were there: undoes the merges at the border, the last
/// one first. Of equal ranks the left one happens first.
GreedyBpe::Border GreedyBpe::border_before(int32_t left, int32_t right) const {
  bool unsure = false;
  for (;;) {
    const Split &a = splits_[static_cast<size_t>(left)], &b = splits_[static_cast<size_t>(right)];
    if (std::max(a.order, b.order) == kOdd) return Border::unsure;
    uint64_t limit = 0;  // an order below it would have come first
    if (a.order > b.order) {
      limit = a.order;
      left = a.right;
    } else if (b.order > 0) {
      limit = uint64_t{b.order} + 1;
      right = b.left;
    } else {
      return unsure ? Border::unsure : Border::apart;
    }
    const Live& across = find(left, right);
    if (across.order >= limit) continue;
    if (!across.odd) return Border::crossed;
    unsure = true;
  }
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

bool GreedyBpe::encode(std::string_view word, WordTokens& out) const {
  const size_t first = out.ids.size();
  std::array<Match, kMaxMatches> found;
  std::vector<bool> dead;  // borders that no encoding has; most words have none
  size_t most = SIZE_MAX;
  Border border = Border::apart;
  auto choose = [&](size_t at, size_t count) -> const Match* {
    while (count > 0) {
      const Match& match = found[--count];
      if (!dead.empty() && dead[at + match.bytes]) continue;
      border = splits_[static_cast<size_t>(match.id)].order == kOdd ? Border::unsure
               : out.ids.size() == first                            ? Border::apart
                                                                    : this->border(out.ids.back(), match.id);
      if (border != Border::crossed) return &match;
    }
    return nullptr;
  };
  for (size_t at = 0; at < word.size();) {
    const size_t count = matches(word.substr(at), most, found);
    if (const Match* match = choose(at, count)) {
      if (border == Border::unsure) break;
      out.add(match->id, match->bytes);
      at += match->bytes;
      most = SIZE_MAX;
    } else if (count > 0 && found[0].bytes > 1) {
      most = found[0].bytes;  // shorter ones were left out
    } else {
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
  if (border != Border::unsure) return true;
  out.ids.resize(first);
  out.bytes.resize(first);
  return false;
}

}  // namespace mtrain::tokenize
