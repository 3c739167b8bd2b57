#include "mtrain/tokenize/byte_trie.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain::tokenize {
namespace {

constexpr uint32_t kFree = UINT32_MAX, kNobodysChild = UINT32_MAX - 1;
constexpr size_t kFirstPlace = 256;  // so that no base is 0
constexpr size_t kPatience = 256;  // positions that are tried for the children of a node before all
                                   // positions up to there count as full

}  // namespace

/// A node and the entries below it. Before the node has a position, the byte that leads to it.
struct ByteTrie::Range {
  size_t begin, end, depth;
  uint32_t node;
};

/// The first base from `from` on that is free for all children.
uint32_t ByteTrie::place_family(const std::vector<Range>& children, size_t& from) {
  for (size_t place = from, tries = 0;; ++place) {
    const auto base = static_cast<uint32_t>(place ^ children[0].node);
    if ((base | 0xFF) >= nodes_.size())
      nodes_.resize(std::max<size_t>(nodes_.size() * 2, (base | 0xFFU) + 1));
    auto taken = [&](const Range& child) { return nodes_[base ^ child.node].check != kFree; };
    if (std::none_of(children.begin(), children.end(), taken)) return base;
    if (++tries > kPatience && children.size() > 1) from = place;
  }
}

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  std::vector<Range> todo{{0, entries.size(), 0, kRoot}};
  nodes_.assign(1024, {});
  nodes_[kRoot].check = kNobodysChild;
  // Nodes with several children need several free positions, so their search starts further on than
  // that for single children.
  size_t free_from = kFirstPlace, roomy_from = kFirstPlace;
  std::vector<Range> children;
  while (!todo.empty()) {
    Range range = todo.back();
    todo.pop_back();
    if (range.begin < range.end && entries[range.begin].text.size() == range.depth) {
      nodes_[range.node].base = kIsText;
      values_.resize(nodes_.size());
      values_[range.node] = entries[range.begin++].value;
    }
    if (range.begin == range.end) continue;
    children.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto byte = static_cast<unsigned char>(entries[i].text[range.depth]);
      if (children.empty() || children.back().node != byte)
        children.push_back({i, i, range.depth + 1, byte});
      children.back().end = i + 1;
    }
    while (free_from < nodes_.size() && nodes_[free_from].check != kFree) ++free_from;
    roomy_from = std::max(roomy_from, free_from);
    const uint32_t base = place_family(children, children.size() > 1 ? roomy_from : free_from);
    MT_CHECK(base < kIsText, "too many nodes for a trie");
    nodes_[range.node].base |= base;
    for (auto& child : children) {
      child.node ^= base;
      nodes_[child.node].check = range.node;
      todo.push_back(child);
    }
  }
}

}  // namespace mtrain::tokenize
