// GreedyBpe: byte pair encoding without merging, for words of scripts that UTF-8 writes in several
// bytes: the longest token that matches is taken, and taken back where merges would have led
// elsewhere. Two tokens stay side by side exactly when no merge crosses their border at any time,
// which is seen by undoing both step by step; a row of tokens is the encoding of its text exactly
// when all neighbours stay apart. Takes time in proportion to the word, and at worst to the longest
// token. Immutable; safe from any thread.
//
// Undoing needs merges that come after those of their parts, as training makes them. Files that
// were made of bare lists of tokens have a few that do not: where a border touches one of these,
// the two tokens are merged after all.
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
  /// `byte_ids`: of the 256 single bytes. `merges`: of `tokens`, by rising rank, each of
  /// two texts to both one after the other; otherwise null. `exact` does
  /// the same merges.
  static std::unique_ptr<const GreedyBpe> make(const TokenTable& tokens,
                                               const std::vector<BpeMerge>& merges,
                                               const std::array<int32_t, 256>& byte_ids,
                                               const Bpe& exact);
  /// Whether this is a word it knows: every byte after the first is above 127.
  static bool takes(std::string_view word);
  /// Appends the tokens of such a word; or appends nothing and returns false where so many borders
  /// need `exact` that merging the word is less work.
  bool encode(std::string_view word, const Bpe& exact, WordTokens& out) const;
  /// Tokens it takes and that no text becomes by merges.
  const std::vector<int32_t>& never_made() const { return never_made_; }

 private:
  static constexpr size_t kMaxMatches = 64;
  static constexpr uint32_t kNone = UINT32_MAX, kOdd = UINT32_MAX - 1, kStep = 64;

  /// Tokens have numbers of their own here, in the order of their ids: those it takes lie close
  /// together.
  using Number = int32_t;

  /// How a token was made: its last merge. `order` is that merge's rank + 1; 0 for single bytes and
  /// for tokens never made, kOdd for those of which it is not known when they are made.
  struct Split {
    Number left = -1, right = -1;
    uint32_t order = 0;
    uint16_t first_as_left = UINT16_MAX,
             first_as_right = UINT16_MAX;  // of merges: the lowest order / kStep
  };
  /// A merge that happens, or, when odd, may.
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
  std::vector<Live> live_;     // the merges that happen; open addressing, a power of two
  std::vector<uint64_t>
      filter_;  // bits of their hashes: most pairs that are asked for are no merge
  uint32_t shift_ = 0, filter_shift_ = 0;
  ByteTrie trie_;                // to numbers
  std::vector<uint32_t> jumps_;  // by a character of three bytes: its node of the tree; 0: none
  std::vector<int32_t> never_made_;
};

}  // namespace mtrain::tokenize
