// ByteTrie: maps texts to numbers, byte by byte. A double array (Aoe 1989): the child of node n for
// byte b is base[n] ^ b if its `check` is n, so a step is one load. Immutable; safe from any
// thread.
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
  /// The texts must be distinct and not empty; they are not referred to afterwards.
  explicit ByteTrie(std::vector<Entry> entries);

  /// Moves `node` to its child for a byte; returns false and keeps `node` when there is none.
  bool step(uint32_t& node, unsigned char byte) const {
    const uint32_t next = (nodes_[node].base & ~kIsText) ^ byte;
    if (nodes_[next].check != node) return false;
    node = next;
    return true;
  }
  /// True when this node is the end of a text, not only a prefix.
  bool is_text(uint32_t node) const { return (nodes_[node].base & kIsText) != 0; }
  /// REQUIRES: is_text(node).
  int32_t value(uint32_t node) const { return values_[node]; }

 private:
  static constexpr uint32_t kIsText = uint32_t{1} << 31;
  /// A leaf has the base 0, which no node with children has. Nodes are small because accesses are
  /// scattered over the array; values are stored separately.
  struct Node {
    uint32_t base = 0, check = UINT32_MAX;
  };
  struct Range;
  uint32_t place_family(const std::vector<Range>& children, size_t& from);

  std::vector<Node> nodes_ = std::vector<Node>(256);
  std::vector<int32_t> values_;
};

}  // namespace mtrain::tokenize
