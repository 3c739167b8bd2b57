// ByteTrie: texts and the numbers they stand for, followed byte by byte. A double array (Aoe 1989):
// the child of node n by byte b is base[n] ^ b where check agrees, so a step is one load.
// Immutable; safe from any thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace mtrain::tokenize {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;

  struct Entry {
    std::string_view text;
    int32_t value = 0;
  };

  ByteTrie() = default;
  /// Of distinct texts, none empty; they need not be kept.
  explicit ByteTrie(std::vector<Entry> entries);

  /// Goes to the child of `node` by a byte; false, and stays, where there is none.
  bool step(uint32_t& node, unsigned char byte) const {
    const uint32_t next = (nodes_[node].base & ~kIsText) ^ byte;
    if (nodes_[next].check != node) return false;
    node = next;
    return true;
  }
  /// Whether a whole text leads to this node, not only the beginning of some.
  bool is_text(uint32_t node) const { return (nodes_[node].base & kIsText) != 0; }
  /// REQUIRES: is_text(node).
  int32_t value(uint32_t node) const { return values_[node]; }

 private:
  static constexpr uint32_t kIsText = uint32_t{1} << 31;
  /// A leaf has the base 0, which no family has: what lies there is no child of it. Small, since
  /// what a text steps on is all over the array: values lie apart.
  struct Node {
    uint32_t base = 0, check = UINT32_MAX;
  };
  struct Range;
  uint32_t place_family(const std::vector<Range>& children, size_t& from);

  std::vector<Node> nodes_ = std::vector<Node>(256);
  std::vector<int32_t> values_;
};

}  // namespace mtrain::tokenize
