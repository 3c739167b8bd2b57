// GreedyBpe: byte pair encoding without merging, for words in scripts whose characters take several
// bytes of UTF-8. It takes the longest matching token and backtracks where merges would give
// another result. Two adjacent tokens are final exactly when no merge crosses their boundary at any
// time; this is checked by undoing the merges of both step by step. A sequence of tokens is the
// encoding of its text exactly when all adjacent pairs are final. Time is proportional to the
// length of the word times, at worst, that of the longest token. Immutable; safe from any thread.
//
// Undoing requires that a merge comes after the merges of its parts, as training produces them.
// Files that were made from plain lists of tokens have a few merges that do not ("odd" ones); at
// boundaries of such tokens, the exact algorithm merges the two tokens.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "mtrain/tokenize/byte_trie.h"
#include "mtrain/tokenize/word_model.h"

namespace mtrain::tokenize {

class Bpe;
class TokenTable;
struct BpeMerge;

/// Two ids as one number, and a hash of them in the upper bits.
inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
inline uint64_t pair_hash(uint64_t key) { return key * 0x9E3779B97F4A7C15ULL; }

class GreedyBpe {
 public:
  /// `byte_ids`: the ids of the 256 single bytes. `merges`: those of `tokens`, by ascending rank;
  /// returns null unless the result of each is the concatenation of its two texts. `exact`: applies
  /// the same merges.
  static std::unique_ptr<const GreedyBpe> make(const TokenTable& tokens,
                                               const std::vector<BpeMerge>& merges,
                                               const std::array<int32_t, 256>& byte_ids,
                                               const Bpe& exact);
  /// True for a word that encode() accepts: every byte after the first is above 127.
  static bool takes(std::string_view word);
  /// Appends the tokens of such a word. Appends nothing and returns false when so many boundaries
  /// need `exact` that merging the whole word is less work.
  bool encode(std::string_view word, const Bpe& exact, WordTokens& out) const;
  /// Tokens that it accepts but that merges never produce.
  const std::vector<int32_t>& never_made() const { return never_made_; }

 private:
  static constexpr size_t kMaxMatches = 64;
  static constexpr uint32_t kNone = UINT32_MAX, kOdd = UINT32_MAX - 1, kStep = 64;

  /// Internal numbers of tokens, in the order of their ids, so that the accepted tokens are close
  /// together in memory.
  using Number = int32_t;

  /// The last merge of a token. `order` is its rank + 1; 0 for single bytes and for tokens that are
  /// never produced, kOdd when it is not known when the token is produced.
  struct Split {
    Number left = -1, right = -1;
    uint32_t order = 0;
    uint16_t first_as_left = UINT16_MAX,
             first_as_right = UINT16_MAX;  // of merges: the lowest order / kStep
  };
  /// A merge that happens, or, when odd, may happen.
  struct Live {
    uint64_t key = ~uint64_t{0};
    uint32_t order = kNone;  // rank + 1
    bool odd = false;
  };
  enum class Border : uint8_t { apart, crossed, unsure };
  struct Match {
    uint32_t node;
    uint32_t bytes;
  };
  class Run;

  GreedyBpe() = default;
  bool number(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
              std::vector<BpeMerge>& out);
  void learn(const TokenTable& tokens, const std::vector<BpeMerge>& merges);
  void make_room(size_t tokens);
  void settle(const TokenTable& tokens, const std::vector<const BpeMerge*>& early);
  void build_tree(const TokenTable& tokens, const std::array<int32_t, 256>& byte_ids,
                  const Bpe& exact);
  Number number_of(int32_t id) const;
  std::string_view text(const TokenTable& tokens, Number token) const;
  bool made(const TokenTable& tokens, Number token) const;
  const Live& find(Number left, Number right) const;
  Live& place(Number left, Number right);
  void set_split(const BpeMerge& merge, bool odd);
  void insert(const BpeMerge& merge, bool odd);
  Border border(Number left, Number right) const;
  Border border_before(Number left, Number right) const;
  size_t matches(std::string_view text, size_t most, std::array<Match, kMaxMatches>& out) const;

  std::vector<int32_t> ids_;   // by number; rising
  std::vector<Split> splits_;  // by number
  std::vector<Live> live_;  // the merges that happen; open addressing, the size is a power of two
  std::vector<uint64_t> filter_;  // a hash filter, since most looked-up pairs are not merges
  uint32_t shift_ = 0, filter_shift_ = 0;
  ByteTrie trie_;                // to numbers
  std::vector<uint32_t> jumps_;  // by a three-byte character: its node of the trie; 0: none
  std::vector<int32_t> never_made_;
};

}  // namespace mtrain::tokenize
