#include "mtrain/checkpoint/slice.h"

namespace mtrain {

std::string describe(const Box& box) { return cat("offset ", box.offset, " size ", box.extent); }

bool fits(const Box& box, const Shape& global) {
  if (box.offset.rank() != global.rank() || box.extent.rank() != global.rank()) return false;
  for (int d = 0; d < global.rank(); ++d)
    if (box.offset[d] < 0 || box.extent[d] < 0 || box.offset[d] > global[d] ||
        box.extent[d] > global[d] - box.offset[d])
      return false;
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box out;
  for (int d = 0; d < a.offset.rank(); ++d) {
    int64_t lo = std::max(a.offset[d], b.offset[d]);
    int64_t hi = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (hi <= lo) return std::nullopt;
    out.offset.push_back(lo);
    out.extent.push_back(hi - lo);
  }
  return out;
}

}  // namespace mtrain
