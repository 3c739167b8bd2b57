#include "mtrain/dist/repeat_kv.h"

namespace mtrain {
namespace {

struct RepeatKv {
  HeadLayout layout;
  int64_t copies = 1;

  // Copies the same part of every group in every row: each copy has its own queries, and the same
  // keys and values as the other copies.
  CopyBlocksArgs stretch(const Tensor& narrow, const Tensor& wide_tensor, int64_t copy,
                         bool of_keys) const {
    HeadLayout wide = with_copies(layout, copies);
    int64_t queries = wide.queries_per_group() * layout.head_dim;
    int64_t from = of_keys ? copies * queries : copy * queries,
            to = copy * wide.group_stride() + (of_keys ? queries : 0);
    return {.src = element(narrow, from),
            .dst = element(wide_tensor, to),
            .outer = narrow.size(0),
            .inner = layout.groups,
            .count = of_keys ? 2 * layout.head_dim : queries,
            .src_outer = narrow.size(1),
            .src_inner = layout.group_stride(),
            .dst_outer = wide_tensor.size(1),
            .dst_inner = copies * wide.group_stride(),
            .accumulate = false,
            .dtype = narrow.dtype()};
  }
  static void* element(const Tensor& t, int64_t at) {
    return static_cast<char*>(t.raw()) + static_cast<size_t>(at) * size_of(t.dtype());
  }
  template <class F>
  void each_stretch(const Tensor& narrow, const Tensor& wide, F&& f) const {
    for (int64_t c = 0; c < copies; ++c)
      for (bool of_keys : {false, true}) f(stretch(narrow, wide, c, of_keys));
  }

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("repeat_kv", x).with(PlacementRule::pointwise);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = ctx.empty({x.size(0), with_copies(layout, copies).width()}, x.dtype());
    each_stretch(
        x, y, [&](const CopyBlocksArgs& args) { ctx.kernels().copy_blocks(ctx.stream(), args); });
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor wide = ctx.empty(dy.shape(), DType::f32),
           sum = ctx.zeros({dy.size(0), layout.width()}, DType::f32);
    ctx.copy(wide, dy);
    each_stretch(sum, wide, [&](CopyBlocksArgs args) {
      CopyBlocksArgs back = args;
      back.src = args.dst, back.dst = const_cast<void*>(args.src), back.accumulate = true;
      back.src_outer = args.dst_outer, back.src_inner = args.dst_inner;
      back.dst_outer = args.src_outer, back.dst_inner = args.src_inner;
      ctx.kernels().copy_blocks(ctx.stream(), back);
    });
    if (dy.dtype() == DType::f32) return g[0].give(ctx, sum);
    Tensor dx = ctx.empty(sum.shape(), dy.dtype());
    ctx.copy(dx, sum);
    g[0].give(ctx, dx);
  }
};

}  // namespace

HeadLayout with_copies(const HeadLayout& layout, int64_t copies) {
  MT_CHECK(copies >= 1 && layout.queries_per_group() % copies == 0, copies, " for ",
           layout.queries_per_group());
  return {layout.heads, layout.groups * copies, layout.head_dim};
}

Tensor repeat_kv(const Tensor& qkv, const HeadLayout& layout, int64_t copies) {
  return copies == 1 ? qkv : apply(RepeatKv{.layout = layout, .copies = copies}, qkv);
}

}  // namespace mtrain
