#include "mtrain/dist/reorder_rows.h"

#include <cstring>

namespace mtrain {

Tensor ordered(Run& run, const Tensor& x, const std::vector<RowRange>& ranges, bool back) {
  if (ranges.size() <= 1) return x;
  Tensor y = run.empty(x.shape(), x.dtype());
  if (!run.backend().computes()) return y;
  size_t row_bytes = static_cast<size_t>(x.numel() / x.size(0)) * size_of(x.dtype()), at = 0;
  for (const RowRange& range : ranges) {
    size_t bytes = static_cast<size_t>(range.rows) * row_bytes, there = static_cast<size_t>(range.row) * row_bytes;
    std::memcpy(static_cast<char*>(y.raw()) + (back ? there : at),
                static_cast<const char*>(x.raw()) + (back ? at : there), bytes);
    at += bytes;
  }
  MT_CHECK(at == row_bytes * static_cast<size_t>(x.size(0)), "ranges of ", at, " bytes for ", x.shape());
  return y;
}

namespace {

struct ReorderRows {  // a permutation: its backward is the other way round
  std::vector<RowRange> ranges;
  bool back = false;
  Placed placed(const Tensor& x) const { return x.placement(); }
  Tensor forward(Run& run, const Tensor& x) { return ordered(run, x, ranges, back); }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) { g[0].give(run, ordered(run, dy, ranges, !back)); }
};

}  // namespace

Tensor reorder_rows(const Tensor& x, const std::vector<RowRange>& ranges, bool back) {
  if (ranges.size() <= 1) return x;
  return apply(ReorderRows{.ranges = ranges, .back = back}, x);
}

}  // namespace mtrain
