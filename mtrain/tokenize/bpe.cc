#include "mtrain/tokenize/bpe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

constexpr size_t kFewSymbols =
    48;  // up to this many symbols, a linear search for the lowest rank is fastest
constexpr size_t kWindowBytes = 16 * 1024;  // window size for longer words
constexpr size_t kGreedyBytes =
    4;  // from this many bytes on, longest matches are faster than merges

/// A 12-bit hash of a word of at least kGreedyBytes bytes.
size_t short_hash(std::string_view word) {
  uint32_t begin = 0;
  std::memcpy(&begin, word.data(), sizeof(begin));
  return pair_hash(uint64_t{begin} << 32 | word.size()) >> 52;
}

}  // namespace

Bpe::Bpe(const TokenTable& tokens, std::vector<BpeMerge> merges, BpeOptions options,
         const std::string& where)
    : tokens_(tokens), options_(std::move(options)) {
  size_t slots = 64;
  shift_ = 58;
  for (; slots * 2 < merges.size() * 3; slots *= 2) --shift_;
  pairs_.resize(slots);
  const size_t mask = slots - 1;
  for (const auto& m : merges) {
    const uint64_t key = pair_key(m.left, m.right);
    size_t i = pair_hash(key) >> shift_;
    while (pairs_[i].key != ~uint64_t{0} && pairs_[i].key != key) i = (i + 1) & mask;
    if (pairs_[i].key == key && pairs_[i].rank <= m.rank)
      continue;  // listed twice: the earlier one applies
    pairs_[i] = {key, m.rank, m.result};
  }
  for (int b = 0; b < 256; ++b) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(b));
    const char byte = static_cast<char>(b);
    int32_t& id = byte_ids_[static_cast<size_t>(b)];
    id = options_.by_bytes        ? tokens.find({&byte, 1})
         : options_.byte_fallback ? tokens.find(name.data())
                                  : -1;
    MT_USER_CHECK(
        !options_.by_bytes || id >= 0, ErrorClass::data,
        cat(where, ": there is no token for the byte ", b, ", so some texts cannot be encoded"),
        "a byte-level vocabulary contains all 256 bytes: the file is damaged or of another type");
    if (b < 128) ascii_ids_[static_cast<size_t>(b)] = tokens.find({&byte, 1});
  }
  if (!options_.by_bytes) return;
  byte_pairs_.resize(size_t{256} * 256);
  for (size_t a = 0; a < 256; ++a)
    for (size_t b = 0; b < 256; ++b) byte_pairs_[a << 8 | b] = find(byte_ids_[a], byte_ids_[b]);
  greedy_ = GreedyBpe::make(tokens, merges, byte_ids_, *this);
  learn_never_made();
}

Bpe::~Bpe() = default;

Bpe::Found Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  const size_t mask = pairs_.size() - 1;
  for (size_t i = pair_hash(key) >> shift_;; i = (i + 1) & mask) {
    const Pair& pair = pairs_[i];
    if (pair.key == key) return {pair.rank, pair.result};
    if (pair.key == ~uint64_t{0}) return {};
  }
}

/// Appends the symbols of one character. `unknown` counts the bytes of preceding unknown characters
/// that are not assigned to a symbol yet.
void Bpe::start_char(std::string_view c, bool begins, bool ends, Symbols& out,
                     std::optional<uint32_t>& unknown) const {
  const auto size = static_cast<uint32_t>(c.size());
  int32_t id = -1;
  const bool plain =
      (begins || options_.inner_prefix.empty()) && (!ends || options_.end_suffix.empty());
  if (plain)
    id = size == 1 && static_cast<signed char>(c[0]) >= 0 ? ascii_ids_[static_cast<size_t>(c[0])]
                                                          : tokens_.find(c);
  else
    id = tokens_.find(cat(begins ? "" : options_.inner_prefix, c, ends ? options_.end_suffix : ""));
  if (id >= 0) {
    if (unknown) out.push_back({*options_.unknown, *unknown});
    unknown.reset();
    out.push_back({id, size});
    return;
  }
  if (options_.byte_fallback && plain && std::all_of(c.begin(), c.end(), [&](char b) {
        return byte_ids_[static_cast<unsigned char>(b)] >= 0;
      })) {
    for (char b : c) out.push_back({byte_ids_[static_cast<unsigned char>(b)], 1});
    return;
  }
  if (!options_.unknown) {  // the character is omitted; its bytes are added to the neighbouring
                            // symbol, so that spans stay correct
    if (!out.empty()) out.back().bytes += size;
    return;
  }
  if (unknown && !options_.fuse_unknown) {
    out.push_back({*options_.unknown, *unknown});
    unknown.reset();
  }
  unknown = unknown.value_or(0) + size;
}

void Bpe::start_symbols(std::string_view word, bool begins, bool ends, Symbols& out) const {
  out.clear();
  if (options_.by_bytes) {
    out.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i)
      out[i] = {byte_ids_[static_cast<unsigned char>(word[i])], 1};
    return;
  }
  std::optional<uint32_t> unknown;
  for (size_t at = 0; at < word.size();) {
    const size_t size = decode_char(word, at).bytes;
    start_char(word.substr(at, size), begins && at == 0, ends && at + size == word.size(), out,
               unknown);
    at += size;
  }
  if (unknown) out.push_back({*options_.unknown, *unknown});
}

void Bpe::encode(std::string_view word, WordTokens& out) const {
  const bool greedy = greedy_ && word.size() >= kGreedyBytes && GreedyBpe::takes(word);
  if (options_.whole_words && (!greedy || may_be_never_made(word)))
    if (const int32_t id = tokens_.find(word); id >= 0) return out.add(id, word.size());
  if (greedy && greedy_->encode(word, *this, out)) return;
  const bool splittable = options_.inner_prefix.empty() && options_.end_suffix.empty();
  if (word.size() > kWindowBytes && splittable) return encode_long(word, out);
  if (options_.by_bytes && word.size() <= kFewSymbols) {
    std::array<Symbol, kFewSymbols> few;
    for (size_t i = 0; i < word.size(); ++i)
      few[i] = {byte_ids_[static_cast<unsigned char>(word[i])], 1};
    const size_t count = merge_few(few.data(), word.size(), word.data());
    for (size_t i = 0; i < count; ++i) out.add(few[i].id, few[i].bytes);
    return;
  }
  Symbols symbols;
  start_symbols(word, true, true, symbols);
  merge(symbols);
  for (const auto& s : symbols) out.add(s.id, s.bytes);
}

void Bpe::merge(Symbols& symbols) const {
  if (symbols.size() > kFewSymbols) return merge_many(symbols);
  symbols.resize(merge_few(symbols.data(), symbols.size(), nullptr));
}

/// Merges `n` symbols in place and returns the number that remains. `bytes`: the bytes of the word
/// if each symbol is one byte, else null.
size_t Bpe::merge_few(Symbol* symbols, size_t n, const char* bytes) const {
  if (n < 2) return n;
  std::array<Found, kFewSymbols + 1> found;  // the merge of symbols i and i + 1
  for (size_t i = 0; i + 1 < n; ++i)
    found[i] = bytes ? byte_pairs_[size_t{static_cast<unsigned char>(bytes[i])} << 8 |
                                   static_cast<unsigned char>(bytes[i + 1])]
                     : find(symbols[i].id, symbols[i + 1].id);
  found[n - 1] = {};
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (found[i].rank < found[best].rank) best = i;
    if (found[best].rank == UINT32_MAX) return n;
    symbols[best] = {found[best].result, symbols[best].bytes + symbols[best + 1].bytes};
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      found[i] = found[i + 1];
    }
    if (--n < 2) return n;
    if (best > 0) found[best - 1] = find(symbols[best - 1].id, symbols[best].id);
    found[best] = best + 1 < n ? find(symbols[best].id, symbols[best + 1].id) : Found{};
  }
}

/// Merges with a heap of pairs and a doubly linked list of symbols. O(n log n).
void Bpe::merge_many(Symbols& symbols) const {
  struct Candidate {
    uint64_t order;  // rank, then position
    int32_t left, right;
    bool operator<(const Candidate& other) const { return order > other.order; }  // a min-heap
  };
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> before(symbols.size()), after(symbols.size());
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  auto candidate = [&](int32_t i) -> std::optional<Candidate> {
    const int32_t j = after[static_cast<size_t>(i)];
    if (j >= n) return std::nullopt;
    const int32_t a = symbols[static_cast<size_t>(i)].id, b = symbols[static_cast<size_t>(j)].id;
    const Found found = find(a, b);
    if (found.rank == UINT32_MAX) return std::nullopt;
    return Candidate{static_cast<uint64_t>(found.rank) << 32 | static_cast<uint32_t>(i), a, b};
  };
  auto push = [&](int32_t i) {
    if (auto c = candidate(i)) {
      heap.push_back(*c);
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (int32_t i = 0; i < n; ++i)
    before[static_cast<size_t>(i)] = i - 1, after[static_cast<size_t>(i)] = i + 1;
  for (int32_t i = 0; i + 1 < n; ++i)
    if (auto c = candidate(i)) heap.push_back(*c);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    const auto i = static_cast<size_t>(top.order & 0xFFFFFFFF);
    const int32_t j = after[i];
    // The entry is outdated if either symbol was merged since then. Removed symbols have id -1.
    if (j >= n || symbols[i].id != top.left || symbols[static_cast<size_t>(j)].id != top.right)
      continue;
    Symbol& gone = symbols[static_cast<size_t>(j)];
    symbols[i] = {find(top.left, top.right).result, symbols[i].bytes + gone.bytes};
    gone.id = -1;
    after[i] = after[static_cast<size_t>(j)];
    if (after[i] < n) before[static_cast<size_t>(after[i])] = static_cast<int32_t>(i);
    push(static_cast<int32_t>(i));
    if (before[i] >= 0) push(before[i]);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.id < 0; });
}

void Bpe::merge_text(std::string_view text, Symbols& symbols) const {
  start_symbols(text, false, false, symbols);
  merge(symbols);
}

bool Bpe::stay_apart(std::string_view left, int32_t left_id, std::string_view right,
                     int32_t right_id) const {
  Symbols symbols;
  merge_text(std::string(left) + std::string(right), symbols);
  return symbols.size() == 2 && symbols[0].id == left_id && symbols[1].id == right_id &&
         symbols[0].bytes == left.size();
}

bool Bpe::stay_apart(int32_t left, int32_t right) const {
  return stay_apart(tokens_.text(left), left, tokens_.text(right), right);
}

bool Bpe::makes(int32_t id) const {
  Symbols symbols;
  merge_text(tokens_.text(id), symbols);
  return symbols.size() == 1 && symbols[0].id == id;
}

void Bpe::learn_never_made() {
  if (!greedy_ || !options_.whole_words) return;
  for (const int32_t id : greedy_->never_made()) {
    const std::string_view text = tokens_.text(id);
    if (text.size() < kGreedyBytes || !tokens_.findable(id)) continue;
    const size_t bit = short_hash(text);
    never_made_[bit >> 6] |= uint64_t{1} << (bit & 63);
  }
}

bool Bpe::may_be_never_made(std::string_view word) const {
  const size_t bit = short_hash(word);
  return (never_made_[bit >> 6] >> (bit & 63) & 1) != 0;
}

/// Encodes a long word in windows. Each window starts at a token boundary of the previous one, and
/// is accepted if no merge crosses that boundary (stay_apart).
void Bpe::encode_long(std::string_view word, WordTokens& out) const {
  const size_t first = out.ids.size();
  size_t at = 0, window = kWindowBytes;
  size_t trouble = 0;  // the furthest boundary that was rejected
  Symbols symbols;
  while (at < word.size()) {
    size_t end = std::min(word.size(), at + window);
    while (!options_.by_bytes && end < word.size() && is_tail_byte(word[end])) ++end;
    merge_text(word.substr(at, end - at), symbols);
    if (out.ids.size() > first && !symbols.empty()) {
      const size_t size = out.bytes.back();
      if (!stay_apart(word.substr(at - size, size), out.ids.back(),
                      word.substr(at, symbols[0].bytes), symbols[0].id)) {
        at -= size;  // the boundary was rejected: go back by one token and use a longer window, so
                     // that the loop ends
        out.ids.pop_back();
        out.bytes.pop_back();
        trouble = std::max(trouble, at + size);
        window *= 2;
        continue;
      }
      if (at > trouble) window = kWindowBytes;
    }
    // The last quarter of the window may still change with the text after it.
    const size_t keep = end == word.size() ? end : at + (end - at) / 4 * 3;
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (i > 0 && at + symbols[i].bytes > keep) break;
      out.add(symbols[i].id, symbols[i].bytes);
      at += symbols[i].bytes;
    }
    if (symbols.empty()) at = end;
  }
}

std::vector<BpeMerge> implied_merges(const TokenTable& tokens, const std::vector<uint32_t>& ranks) {
  std::vector<BpeMerge> out;
  for (int64_t id = 0; id < tokens.size(); ++id) {
    const uint32_t rank = ranks[static_cast<size_t>(id)];
    const std::string_view text =
        tokens.has(id) ? tokens.text(static_cast<int32_t>(id)) : std::string_view();
    if (rank == UINT32_MAX || text.empty()) continue;
    for (size_t at = char_bytes(text[0]); at < text.size(); at += char_bytes(text[at])) {
      const int32_t left = tokens.find(text.substr(0, at)), right = tokens.find(text.substr(at));
      if (left >= 0 && right >= 0) out.push_back({left, right, static_cast<int32_t>(id), rank});
    }
  }
  return out;
}

bool begins_words(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
                  std::string_view mark) {
  return std::none_of(merges.begin(), merges.end(), [&](const BpeMerge& merge) {
    std::string_view text = tokens.text(merge.result);
    while (text.starts_with(mark)) text.remove_prefix(mark.size());
    return text.find(mark) != std::string_view::npos;
  });
}

}  // namespace mtrain::tokenize
