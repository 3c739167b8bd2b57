#include "mtrain/finetune/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "mtrain/base/error.h"

namespace mtrain::finetune {
namespace {

/// The free room of each pack, as a tree whose nodes hold the largest room below them: a descent
/// finds the first pack with enough room.
class Rooms {
 public:
  Rooms(size_t packs, int32_t capacity)
      : leaves_(std::bit_ceil(std::max<size_t>(packs, 1))), room_(2 * leaves_, capacity) {}

  size_t first_with(int32_t wanted) const {
    size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= wanted ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }
  void take(size_t pack, int32_t amount) {
    size_t node = pack + leaves_;
    room_[node] -= amount;
    while (node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
  }

 private:
  size_t leaves_;
  std::vector<int32_t> room_;
};

}  // namespace

Packs pack_first_fit_decreasing(std::span<const int32_t> lengths, int32_t capacity) {
  std::vector<int32_t> order(lengths.size()), pack_of(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](int32_t item) { return lengths[static_cast<size_t>(item)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return length(a) > length(b); });
  Rooms rooms(lengths.size(), capacity);
  int32_t packs = 0;
  for (int32_t item : order) {
    MT_CHECK(length(item) > 0 && length(item) <= capacity, "an item of ", length(item),
             " for packs of ", capacity);
    const size_t pack = rooms.first_with(length(item));
    rooms.take(pack, length(item));
    pack_of[static_cast<size_t>(item)] = static_cast<int32_t>(pack);
    packs = std::max(packs, static_cast<int32_t>(pack) + 1);
  }
  Packs out;
  out.begin.assign(static_cast<size_t>(packs) + 1, 0);
  for (int32_t pack : pack_of) ++out.begin[static_cast<size_t>(pack) + 1];
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  std::vector<int64_t> at(out.begin.begin(), out.begin.end() - 1);
  out.items.resize(lengths.size());
  for (int32_t item : order)
    out.items[static_cast<size_t>(at[static_cast<size_t>(pack_of[static_cast<size_t>(item)])]++)] =
        item;
  return out;
}

Packs pack_singly(int64_t count) {
  Packs out;
  out.items.resize(static_cast<size_t>(count));
  std::iota(out.items.begin(), out.items.end(), 0);
  out.begin.resize(static_cast<size_t>(count) + 1);
  std::iota(out.begin.begin(), out.begin.end(), int64_t{0});
  return out;
}

}  // namespace mtrain::finetune
