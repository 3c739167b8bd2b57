#include "mtrain/dist/context_places.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

// Number of rows of a rank for its share of a sequence.
int64_t share(int64_t tokens, int ranks) { return (tokens + ranks - 1) / ranks; }

// Places the longest sequences first, each on the group of its size with the fewest rows.
std::vector<ContextPlace> places(std::span<const int32_t> lengths, std::span<const int> sizes,
                                 int ranks, std::vector<int64_t>& rows) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : lengths[a] > lengths[b];
  });
  rows.assign(static_cast<size_t>(ranks), 0);
  std::vector<ContextPlace> found(lengths.size());
  for (size_t s : order) {
    auto most = [&](int first) {
      return *std::max_element(rows.begin() + first, rows.begin() + first + sizes[s]);
    };
    found[s] = {0, sizes[s]};
    for (int first = sizes[s]; first < ranks; first += sizes[s])
      if (most(first) < most(found[s].first)) found[s].first = first;
    for (int rank = found[s].first; rank < found[s].first + sizes[s]; ++rank)
      rows[static_cast<size_t>(rank)] += share(lengths[s], sizes[s]);
  }
  return found;
}

// The next larger size: a multiple of the current one, so that groups of one size are contained in
// groups of the next.
int larger(int size, int ranks) {
  int next = 2 * size;
  while (ranks % next != 0) next += size;
  return next;
}

}  // namespace

std::vector<ContextPlace> context_places(std::span<const int32_t> lengths, int ranks,
                                         int64_t max_tokens) {
  std::vector<int> sizes;
  for (int32_t length : lengths) {
    int size = 1;
    while (size < ranks && share(length, size) > max_tokens) size = larger(size, ranks);
    sizes.push_back(size);
  }
  std::vector<int64_t> rows;
  for (;;) {
    std::vector<ContextPlace> found = places(lengths, sizes, ranks, rows);
    if (std::count(rows.begin(), rows.end(), 0) == 0) return found;
    size_t widest =
        lengths.size();  // the sequence with the most tokens per rank that can use more ranks
    for (size_t s = 0; s < sizes.size(); ++s)
      if (sizes[s] < ranks && lengths[s] > 0 &&
          (widest == lengths.size() ||
           share(lengths[s], sizes[s]) > share(lengths[widest], sizes[widest])))
        widest = s;
    if (widest == lengths.size()) return found;
    sizes[widest] = larger(sizes[widest], ranks);
  }
}

}  // namespace mtrain
