// GreedyBpe: byte pair encoding without merging, for words of scripts that UTF-8 writes in several bytes: the
// longest token that matches is taken, and taken back where merges would have led elsewhere. Two tokens stay
// side by side exactly when no merge crosses their border at any time, which is seen by undoing both step by
// step; a row of tokens is the encoding of its text exactly when all neighbours stay apart. Takes time in
// proportion to the word. Immutable; safe from any thread.
//
// All this holds where merges come after those of their parts, as training makes them. Files that were made
// of bare lists of tokens have a few that do not: where a word touches one of these, encode() leaves it to
// others.
#pragma once
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "mtrain/tokenize/word_model.h"

namespace mtrain::tokenize {

class TokenTable;
struct BpeMerge;

class GreedyBpe {
 public:
  /// `byte_ids`: of the 256 single bytes. `merges`: of `tokens`, by rising rank; otherwise null.
  static std::unique_ptr<const GreedyBpe> make(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
                                               const std::array<int32_t, 256>& byte_ids);
  /// Whether this is a word it knows: every byte after the first is above 127.
  static bool takes(std::string_view word);
  /// Appends the tokens of such a word; or appends nothing and returns false where it cannot be sure of them.
  bool encode(std::string_view word, WordTokens& out) const;

 private:
  static constexpr size_t kMaxMatches = 64;
  static constexpr uint32_t kNone = UINT32_MAX, kOdd = UINT32_MAX - 1;

  /// How a token was made: its last merge. `order` is that merge's rank + 1; 0 for single bytes, kOdd for
  /// tokens of which it is not known when they are made.
  struct Split {
    int32_t left = -1, right = -1;
    uint32_t order = 0;
  };
  /// A merge that happens, or, when odd, may.
  struct Live {
    uint64_t key = ~uint64_t{0};
    uint32_t order = kNone;  // rank + 1
    bool odd = false;
  };
  enum class Border : uint8_t { apart, crossed, unsure };
  /// A node of the tree of tokens by their bytes. Children lie side by side, those of bytes 0x80 to 0xBF
  /// first.
  struct Node {
    uint64_t low = 0, high = 0;  // which children there are
    uint32_t first = 0;
    int32_t token = -1;
  };
  struct Match {
    int32_t id;
    uint32_t bytes;
  };

  GreedyBpe() = default;
  void learn(const TokenTable& tokens, const std::vector<BpeMerge>& merges);
  void make_room(size_t tokens);
  void settle(const TokenTable& tokens, const std::vector<const BpeMerge*>& early);
  void build_tree(const TokenTable& tokens, const std::array<int32_t, 256>& byte_ids);
  bool made(const TokenTable& tokens, int32_t id) const;
  const Live& find(int32_t left, int32_t right) const;
  Live& place(int32_t left, int32_t right);
  void insert(const BpeMerge& merge, bool odd);
  Border border(int32_t left, int32_t right) const;
  Border border_before(int32_t left, int32_t right) const;
  size_t matches(std::string_view text, size_t most, std::array<Match, kMaxMatches>& out) const;

  std::vector<Split> splits_;     // by id
  std::vector<Live> live_;        // the merges that happen; open addressing, a power of two
  std::vector<uint64_t> filter_;  // bits of their hashes: most pairs that are asked for are no merge
  uint32_t shift_ = 0, filter_shift_ = 0;
  std::vector<Node> nodes_;  // the roots first, by first byte
};

}  // namespace mtrain::tokenize
