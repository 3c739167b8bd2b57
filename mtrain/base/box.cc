#include "mtrain/base/box.h"

#include <algorithm>

namespace mtrain {

Box whole_box(const Shape& shape) {
  Box box{shape, shape};
  for (int d = 0; d < shape.rank(); ++d) box.offset[d] = 0;
  return box;
}

std::string describe(const Box& box) { return cat("offset ", box.offset, " size ", box.extent); }

bool fits(const Box& box, const Shape& shape) {
  if (box.offset.rank() != shape.rank() || box.extent.rank() != shape.rank()) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (box.offset[d] < 0 || box.extent[d] < 0 || box.offset[d] > shape[d] ||
        box.extent[d] > shape[d] - box.offset[d])
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

Box moved(const Box& box, const Shape& from, const Shape& to) {
  Box out = box;
  for (int d = 0; d < box.offset.rank(); ++d) out.offset[d] += to[d] - from[d];
  return out;
}

namespace {

// The same for dimensions `dim` and up of the row-major tensor, at index `at` of the dimensions
// before: the rest of a row, whole rows, the start of a row.
void add_range(const Shape& shape, int dim, int64_t begin, int64_t end, const Shape& at,
               std::vector<Box>& out) {
  if (begin >= end) return;
  if (dim == shape.rank()) return out.push_back({at, shape});
  int64_t row = 1;
  for (int d = dim + 1; d < shape.rank(); ++d) row *= shape[d];
  auto rows = [&](int64_t first, int64_t last) {
    if (first >= last) return;
    Box box{at, shape};
    for (int d = 0; d < dim; ++d) box.extent[d] = 1;
    box.offset[dim] = first, box.extent[dim] = last - first;
    out.push_back(box);
  };
  auto within = [&](int64_t index, int64_t lo, int64_t hi) {
    Shape inner = at;
    inner[dim] = index;
    add_range(shape, dim + 1, lo, hi, inner, out);
  };
  int64_t first = begin / row, last = end / row;
  if (begin % row == 0) return rows(first, last), within(last, 0, end % row);
  if (first == last) return within(first, begin % row, end % row);
  within(first, begin % row, row);
  rows(first + 1, last);
  if (end % row) within(last, 0, end % row);
}

}  // namespace

std::vector<Box> boxes_of_range(const Shape& shape, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  add_range(shape, 0, begin, end, whole_box(shape).offset, boxes);
  return boxes;
}

}  // namespace mtrain
