#include "mtrain/dist/reorder_rows.h"

namespace mtrain {

Tensor ordered(ExecutionContext& ctx, const Tensor& x, const std::vector<RowRange>& ranges,
               bool back) {
  if (ranges.size() <= 1) return x;
  Tensor y = ctx.empty(x.shape(), x.dtype());
  int64_t at = 0;
  for (const RowRange& range : ranges) {
    Tensor there = (back ? y : x).slice(0, range.first, range.first + range.rows),
           here = (back ? x : y).slice(0, at, at + range.rows);
    ctx.copy(back ? there : here, back ? here : there);
    at += range.rows;
  }
  MT_CHECK_EQ(at, x.size(0));
  return y;
}

namespace {

struct ReorderRows {  // a permutation; backward applies the inverse
  std::vector<RowRange> ranges;
  bool back = false;
  MaybePlacement placed(const Tensor& x) const { return x.placement(); }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) { return ordered(ctx, x, ranges, back); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, ordered(ctx, dy, ranges, !back));
  }
};

}  // namespace

Tensor reorder_rows(const Tensor& x, const std::vector<RowRange>& ranges, bool back) {
  if (ranges.size() <= 1) return x;
  return apply(ReorderRows{.ranges = ranges, .back = back}, x);
}

}  // namespace mtrain
