// Box: a rectangular part of a row-major tensor, and its algebra. Parameters, checkpoints and
// imports describe what a rank or a file holds by boxes. Values; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/shape.h"

namespace mtrain {

/// The elements offset[d] … offset[d] + extent[d] - 1 of each dimension d. A box of
/// rank 0 is one element.
struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;
};

/// All elements of a tensor of this shape.
MT_API Box whole_box(const Shape& shape);
/// "offset [0, 4] size [2, 8]".
MT_API std::string describe(const Box& box);
/// True when `box` has the rank of `shape`, no negative numbers, and is within it. Does not
/// overflow, so boxes from untrusted files can be checked.
MT_API bool fits(const Box& box, const Shape& shape);
/// The common elements; absent when there are none (an empty box has none). REQUIRES: equal ranks.
MT_API std::optional<Box> intersect(const Box& a, const Box& b);
/// `box` translated by the vector to - from; the extent does not change. REQUIRES: equal ranks.
MT_API Box moved(const Box& box, const Shape& from, const Shape& to);
/// Elements [begin, end) of a flattened tensor as disjoint boxes in rising order: at most two for
/// each dimension but the last, and one for the last. None for an empty range. REQUIRES: a range
/// within shape.numel().
MT_API std::vector<Box> boxes_of_range(const Shape& shape, int64_t begin, int64_t end);

/// Calls visit(element of `from_shape`, element of `to_shape`, count) for each maximal run of
/// elements that is contiguous both in the box `from` of one tensor and in the box `to` of another
/// one, in rising order of both. REQUIRES: equal extents; each box is within its shape.
template <class Visit>
void for_each_run(const Box& from, const Shape& from_shape, const Box& to, const Shape& to_shape,
                  Visit&& visit) {
  const Shape& extent = from.extent;
  const int rank = extent.rank();
  int inner = rank;  // dimensions [inner, rank) merge into the run
  int64_t count = 1, num_runs = 1;
  while (inner > 0) {
    --inner;
    count *= extent[inner];
    if (extent[inner] != from_shape[inner] || extent[inner] != to_shape[inner]) break;
  }
  for (int d = 0; d < inner; ++d) num_runs *= extent[d];
  if (count == 0) return;
  for (int64_t run = 0; run < num_runs; ++run) {
    int64_t from_at = 0, to_at = 0, from_stride = 1, to_stride = 1, rest = run;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t at = d < inner ? rest % extent[d] : 0;
      if (d < inner) rest /= extent[d];
      from_at += (from.offset[d] + at) * from_stride, to_at += (to.offset[d] + at) * to_stride;
      from_stride *= from_shape[d], to_stride *= to_shape[d];
    }
    visit(from_at, to_at, count);
  }
}

}  // namespace mtrain
