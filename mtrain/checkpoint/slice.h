// Slice: a box of a named global tensor in host memory, row-major. Boxes make checkpoints
// independent of the layout that wrote them. Values; a Slice does not own the memory that it points
// to. Stateless functions; safe from any thread.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "mtrain/base/dtype.h"
#include "mtrain/base/shape.h"

namespace mtrain {

/// The elements offset[d] … offset[d] + extent[d] - 1 of each dimension d. Rank 0 is one element.
struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;
};

struct Slice {
  std::string name;
  DType dtype = DType::f32;
  Shape global;               // of the whole tensor
  Shape offset, local;        // this slice's box in it
  std::span<std::byte> data;  // local.numel() elements

  Box box() const { return {offset, local}; }
};

/// A slice that is the whole tensor.
inline Slice whole_slice(std::string name, DType dtype, const Shape& shape,
                         std::span<std::byte> data) {
  Shape zero;
  for (int d = 0; d < shape.rank(); ++d) zero.push_back(0);
  return {std::move(name), dtype, shape, zero, shape, data};
}

/// "[offset 0, 4 size 2, 8]".
MT_API std::string describe(const Box& box);
/// True when `box` has the rank of `global`, no negative numbers, and is inside it. Never
/// overflows.
MT_API bool fits(const Box& box, const Shape& global);
/// The common elements; absent when there are none (an empty box has none). REQUIRES: equal ranks.
MT_API std::optional<Box> intersect(const Box& a, const Box& b);

/// A run of consecutive elements that two row-major boxes have in common.
struct Stretch {
  int64_t from = 0, to = 0, count = 0;  // element positions within source and target
};

/// Calls `visit(Stretch)` for each maximal run of `common` that is consecutive in both boxes, in
/// rising order of both. REQUIRES: `common` lies within both.
template <class Visit>
void for_each_run(const Box& source, const Box& target, const Box& common, Visit&& visit) {
  const int rank = common.extent.rank();
  int inner = rank;  // dimensions [inner, rank) are complete in both boxes and merge into the run
  int64_t count = 1;
  while (inner > 0) {
    --inner;
    count *= common.extent[inner];
    if (common.extent[inner] != source.extent[inner] ||
        common.extent[inner] != target.extent[inner])
      break;
  }
  Shape at = common.offset;
  for (;;) {
    Stretch run{0, 0, count};
    for (int d = 0; d < rank; ++d) {
      run.from = run.from * source.extent[d] + at[d] - source.offset[d];
      run.to = run.to * target.extent[d] + at[d] - target.offset[d];
    }
    visit(run);
    int d = inner;
    for (;;) {
      if (d == 0) return;
      --d;
      if (++at[d] < common.offset[d] + common.extent[d]) break;
      at[d] = common.offset[d];
    }
  }
}

}  // namespace mtrain
