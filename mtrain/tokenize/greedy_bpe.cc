#include "mtrain/tokenize/greedy_bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/token_table.h"

namespace mtrain::tokenize {
namespace {

constexpr uint64_t kHighBits = 0x8080808080808080ULL;
constexpr size_t kExactBytes = 8;  // symbols merged to decide boundaries, per byte of a word,
                                   // before the whole word is merged instead

unsigned char byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// An index for characters of three bytes, which are common in scripts without spaces.
size_t three_bytes(unsigned char a, unsigned char b, unsigned char c) {
  return static_cast<size_t>((a & 15) << 12 | (b & 63) << 6 | (c & 63));
}

}  // namespace

bool GreedyBpe::takes(std::string_view word) {
  if (word.empty() || (word.size() > 1 && byte_at(word, 1) < 0x80))
    return false;  // rejects most other words early
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
                                                 const std::array<int32_t, 256>& byte_ids,
                                                 const Bpe& exact) {
  for (size_t i = 0; i < merges.size(); ++i)
    if ((i > 0 && merges[i].rank < merges[i - 1].rank) || merges[i].rank >= kOdd - 1)
      return nullptr;
  std::unique_ptr<GreedyBpe> out(new GreedyBpe());
  std::vector<BpeMerge> ours;
  if (!out->number(tokens, merges, ours)) return nullptr;
  out->learn(tokens, ours);
  out->build_tree(tokens, byte_ids, exact);
  return out;
}

/// Numbers the tokens and their merges. False if the result of a merge is not the concatenation of
/// its parts.
bool GreedyBpe::number(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
                       std::vector<BpeMerge>& out) {
  std::vector<Number> numbers(static_cast<size_t>(tokens.size()), -1);
  for (int64_t id = 0; id < tokens.size(); ++id) {
    if (!tokens.has(id) || !takes(tokens.text(static_cast<int32_t>(id)))) continue;
    numbers[static_cast<size_t>(id)] = static_cast<Number>(ids_.size());
    ids_.push_back(static_cast<int32_t>(id));
  }
  splits_.resize(ids_.size());
  auto number_of = [&](int32_t id) { return numbers[static_cast<size_t>(id)]; };
  for (const auto& m : merges) {
    if (number_of(m.result) < 0) continue;
    const std::string_view left = tokens.text(m.left), right = tokens.text(m.right),
                           both = tokens.text(m.result);
    if (left.empty() || right.empty() || left.size() + right.size() != both.size()) return false;
    if (!both.starts_with(left) || !both.ends_with(right)) return false;
    out.push_back({number_of(m.left), number_of(m.right), number_of(m.result), m.rank});
  }
  return true;
}

GreedyBpe::Number GreedyBpe::number_of(int32_t id) const {
  return static_cast<Number>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
}

std::string_view GreedyBpe::text(const TokenTable& tokens, Number token) const {
  return tokens.text(ids_[static_cast<size_t>(token)]);
}

bool GreedyBpe::made(const TokenTable& tokens, Number token) const {
  return splits_[static_cast<size_t>(token)].order > 0 || text(tokens, token).size() == 1;
}

void GreedyBpe::make_room(size_t tokens) {
  const auto bits = static_cast<uint32_t>(std::bit_width(tokens * 2 + 64));
  shift_ = 64 - bits;
  live_.resize(size_t{1} << bits);
  filter_shift_ = 64 - (bits + 3);
  filter_.resize((size_t{1} << (bits + 3)) / 64);
}

/// Finds the merge that produces each token. Other merges with the same result never happen, since
/// a token's bytes become the token in any context. For odd tokens the merge is not known, so all
/// are kept.
void GreedyBpe::learn(const TokenTable& tokens, const std::vector<BpeMerge>& merges) {
  make_room(merges.size());
  std::vector<const BpeMerge*> early;  // merges with a lower rank than those of their parts
  for (const BpeMerge& m : merges) {
    if (place(m.left, m.right).key != ~uint64_t{0})
      continue;  // a duplicate: the earlier one applies
    if (made(tokens, m.result)) {
      if (splits_[static_cast<size_t>(m.result)].order == kOdd)
        insert(m, true);  // this merge may produce the token instead
      continue;
    }
    if (!made(tokens, m.left) || !made(tokens, m.right)) {
      early.push_back(&m);
      insert(m, true);
      continue;
    }
    const Border border = border_before(m.left, m.right);
    if (border == Border::crossed) continue;
    const bool odd = border == Border::unsure;
    set_split(m, odd);
    insert(m, odd);
  }
  settle(tokens, early);
}

/// Early merges can happen only if no other merge produces their token.
void GreedyBpe::settle(const TokenTable& tokens, const std::vector<const BpeMerge*>& early) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const BpeMerge* m : early) {
      if (made(tokens, m->result) || !made(tokens, m->left) || !made(tokens, m->right)) continue;
      set_split(*m, true);
      changed = true;
    }
  }
  for (const BpeMerge* m : early)
    if (splits_[static_cast<size_t>(m->result)].order != kOdd)
      place(m->left, m->right).order = kNone;
}

/// Builds the trie of the tokens that merges produce from their own text.
void GreedyBpe::build_tree(const TokenTable& tokens, const std::array<int32_t, 256>& byte_ids,
                           const Bpe& exact) {
  std::vector<ByteTrie::Entry> entries;
  for (size_t i = 0; i < ids_.size(); ++i) {
    const uint32_t order = splits_[i].order;
    const std::string_view text = tokens.text(ids_[i]);
    const bool own = text.size() == 1 ? byte_ids[byte_at(text, 0)] == ids_[i]
                                      : order > 0 && (order != kOdd || exact.makes(ids_[i]));
    if (own)
      entries.push_back({text, static_cast<Number>(i)});
    else
      never_made_.push_back(ids_[i]);
  }
  trie_ = ByteTrie(std::move(entries));
  jumps_.resize(size_t{1} << 16);
  for (unsigned a = 0xE0; a < 0xF0; ++a)
    for (unsigned b = 0x80; b < 0xC0; ++b)
      for (unsigned c = 0x80; c < 0xC0; ++c) {
        uint32_t node = ByteTrie::kRoot;
        const std::array<unsigned char, 3> bytes{static_cast<unsigned char>(a),
                                                 static_cast<unsigned char>(b),
                                                 static_cast<unsigned char>(c)};
        if (std::all_of(bytes.begin(), bytes.end(),
                        [&](unsigned char byte) { return trie_.step(node, byte); }))
          jumps_[three_bytes(bytes[0], bytes[1], bytes[2])] = node;
      }
}

const GreedyBpe::Live& GreedyBpe::find(int32_t left, int32_t right) const {
  static constexpr Live kNothing{};
  const uint64_t key = pair_key(left, right), hash = pair_hash(key), bit = hash >> filter_shift_;
  if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return kNothing;
  for (size_t i = hash >> shift_;; i = (i + 1) & (live_.size() - 1)) {
    if (live_[i].key == key) return live_[i];
    if (live_[i].key == ~uint64_t{0}) return kNothing;
  }
}

/// The slot of a merge, or the free slot for it.
GreedyBpe::Live& GreedyBpe::place(int32_t left, int32_t right) {
  const uint64_t key = pair_key(left, right);
  size_t i = pair_hash(key) >> shift_;
  while (live_[i].key != ~uint64_t{0} && live_[i].key != key) i = (i + 1) & (live_.size() - 1);
  return live_[i];
}

void GreedyBpe::set_split(const BpeMerge& merge, bool odd) {
  Split& split = splits_[static_cast<size_t>(merge.result)];
  split.left = merge.left;
  split.right = merge.right;
  split.order = odd ? kOdd : merge.rank + 1;
}

void GreedyBpe::insert(const BpeMerge& merge, bool odd) {
  const uint32_t order = merge.rank + 1;
  const uint64_t key = pair_key(merge.left, merge.right), bit = pair_hash(key) >> filter_shift_;
  place(merge.left, merge.right) = {key, order, odd};
  auto lower = [order](uint16_t& first) {
    first = static_cast<uint16_t>(std::min<uint32_t>(first, order / kStep));
  };
  lower(splits_[static_cast<size_t>(merge.left)].first_as_left);
  lower(splits_[static_cast<size_t>(merge.right)].first_as_right);
  filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
}

/// Whether these adjacent tokens are not changed by merges.
GreedyBpe::Border GreedyBpe::border(int32_t left, int32_t right) const {
  const Live& both = find(left, right);
  if (both.order == kNone) return border_before(left, right);
  return !both.odd || border_before(left, right) == Border::crossed ? Border::crossed
                                                                    : Border::unsure;
}

/// Whether no merge crossed the boundary before both tokens were complete: undoes the merges at the
/// boundary, the last one first. Of equal ranks, the left one happens first.
GreedyBpe::Border GreedyBpe::border_before(int32_t left, int32_t right) const {
  bool unsure = false;
  const Split *a = &splits_[static_cast<size_t>(left)], *b = &splits_[static_cast<size_t>(right)];
  for (;;) {
    if (std::max(a->order, b->order) == kOdd) return Border::unsure;
    uint64_t limit = 0;  // a merge with a lower order would have happened earlier
    if (a->order > b->order) {
      limit = a->order;
      left = a->right;
      a = &splits_[static_cast<size_t>(left)];
    } else if (b->order > 0) {
      limit = uint64_t{b->order} + 1;
      right = b->left;
      b = &splits_[static_cast<size_t>(right)];
    } else {
      return unsure ? Border::unsure : Border::apart;
    }
    if (uint64_t{kStep} * std::max(a->first_as_left, b->first_as_right) >= limit) continue;
    const Live& across = find(left, right);
    if (across.order >= limit) continue;
    if (!across.odd) return Border::crossed;
    unsure = true;
  }
}

/// Finds the tokens of fewer than `most` bytes that begin here, shortest first. If there are too
/// many, only the longest ones; if the whole first character is a prefix of a token, no tokens that
/// are a part of it.
size_t GreedyBpe::matches(std::string_view text, size_t most,
                          std::array<Match, kMaxMatches>& out) const {
  size_t count = 0, size = 0;
  const size_t end = std::min(text.size(), most - 1);
  auto take = [&](uint32_t node) {
    if (!trie_.is_text(node)) return;
    if (count == kMaxMatches) {
      std::copy(out.begin() + kMaxMatches / 2, out.end(), out.begin());
      count = kMaxMatches / 2;
    }
    out[count++] = {node, static_cast<uint32_t>(size)};
  };
  uint32_t node = ByteTrie::kRoot;
  if (end >= 3 && (byte_at(text, 0) & 0xF0) == 0xE0 &&
      ((byte_at(text, 1) & byte_at(text, 2)) & 0xC0) == 0x80)
    node = jumps_[three_bytes(byte_at(text, 0), byte_at(text, 1), byte_at(text, 2))];
  if (node != ByteTrie::kRoot) {
    size = 3;
    take(node);
  }
  while (size < end && trie_.step(node, byte_at(text, size))) {
    ++size;
    take(node);
  }
  return count;
}

/// One word's encoding.
class GreedyBpe::Run {
 public:
  Run(const GreedyBpe& greedy, const Bpe& exact, std::string_view word, WordTokens& out)
      : greedy_(greedy), exact_(exact), word_(word), out_(out), first_(out.ids.size()) {}

  bool encode() {
    size_t most = SIZE_MAX;
    for (size_t at = 0; at < word_.size();) {
      const size_t count = greedy_.matches(word_.substr(at), most, found_);
      const Match* match = choose(at, count);
      if (exact_bytes_ > kExactBytes * word_.size()) return give_up();
      if (match) {
        last_ = token_;
        out_.add(greedy_.ids_[static_cast<size_t>(last_)], match->bytes);
        at += match->bytes;
        most = SIZE_MAX;
      } else if (count > 0 ? found_[0].bytes > 1 : most > 3) {
        most = count > 0 ? found_[0].bytes : 3;  // shorter ones were omitted
      } else {
        most = take_back(at);
        at -= most;
      }
    }
    return true;
  }

 private:
  /// The longest match that can follow the previous token; stores it in token_.
  const Match* choose(size_t at, size_t count) {
    while (count > 0) {
      const Match& match = found_[--count];
      if (!dead_.empty() && dead_[at + match.bytes]) continue;
      token_ = greedy_.trie_.value(match.node);
      if (out_.ids.size() == first_ || stays(match.bytes)) return &match;
    }
    return nullptr;
  }
  bool stays(size_t bytes) {
    const Border border = greedy_.border(last_, token_);
    if (border != Border::unsure) return border == Border::apart;
    exact_bytes_ += out_.bytes.back() + bytes;
    return exact_bytes_ <= kExactBytes * word_.size() &&
           exact_.stay_apart(out_.ids.back(), greedy_.ids_[static_cast<size_t>(token_)]);
  }
  /// No match fits after the previous token, so no encoding has a boundary here. Removes the
  /// previous token and returns its size.
  size_t take_back(size_t at) {
    MT_CHECK(out_.ids.size() > first_, "a word has no encoding");
    dead_.resize(word_.size() + 1);
    dead_[at] = true;
    const size_t size = out_.bytes.back();
    out_.ids.pop_back();
    out_.bytes.pop_back();
    if (out_.ids.size() > first_) last_ = greedy_.number_of(out_.ids.back());
    return size;
  }
  bool give_up() {
    out_.ids.resize(first_);
    out_.bytes.resize(first_);
    return false;
  }

  const GreedyBpe& greedy_;
  const Bpe& exact_;
  std::string_view word_;
  WordTokens& out_;
  size_t first_, exact_bytes_ = 0;
  Number last_ = -1, token_ = -1;
  std::array<Match, kMaxMatches> found_;
  std::vector<bool>
      dead_;  // positions that are not a boundary in any encoding; most words have none
};

bool GreedyBpe::encode(std::string_view word, const Bpe& exact, WordTokens& out) const {
  return Run(*this, exact, word, out).encode();
}

}  // namespace mtrain::tokenize
