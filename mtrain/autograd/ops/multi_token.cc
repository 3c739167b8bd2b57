// join_columns and join_rows copy every element once; take_rows and attach_loss copy
// nothing in forward.
#include "mtrain/autograd/multi_token_ops.h"

namespace mtrain {
namespace {

/// Copies `count` columns, from column `from` of one matrix to column `to` of another.
void copy_columns(ExecutionContext& ctx, const Tensor& src, int64_t from, const Tensor& dst,
                  int64_t to, int64_t count) {
  auto at = [](const Tensor& t, int64_t column) {
    return static_cast<char*>(t.raw()) + static_cast<size_t>(column) * size_of(t.dtype());
  };
  ctx.kernels().copy_blocks(ctx.stream(), {.src = at(src, from),
                                           .dst = at(dst, to),
                                           .outer = src.size(0),
                                           .inner = 1,
                                           .count = count,
                                           .src_outer = src.size(1),
                                           .src_inner = 0,
                                           .dst_outer = dst.size(1),
                                           .dst_inner = 0,
                                           .accumulate = false,
                                           .dtype = src.dtype()});
}

struct JoinColumns {
  int64_t a_cols = 0, b_cols = 0;

  MaybePlacement placed(const Tensor& a, const Tensor& b) const {
    return ResultPlacement("join_columns", a)
        .with(PlacementRule::pointwise, b)
        .unsharded(1, "the columns of the result are those of both inputs");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& a, const Tensor& b) {
    a_cols = a.size(1), b_cols = b.size(1);
    Tensor y = ctx.empty({a.size(0), a_cols + b_cols}, a.dtype());
    copy_columns(ctx, a, 0, y, 0, a_cols);
    copy_columns(ctx, b, 0, y, a_cols, b_cols);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    auto give = [&](InputGrad& input, int64_t from, int64_t count) {
      if (!input.wanted()) return;
      Tensor part = ctx.empty({dy.size(0), count}, dy.dtype());
      copy_columns(ctx, dy, from, part, 0, count);
      input.give(ctx, part);
    };
    give(g[0], 0, a_cols);
    give(g[1], a_cols, b_cols);
  }
};

struct JoinRows {
  int64_t a_rows = 0, b_rows = 0;

  MaybePlacement placed(const Tensor& a, const Tensor& b) const {
    return ResultPlacement("join_rows", a).with(PlacementRule::pointwise, b);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& a, const Tensor& b) {
    a_rows = a.size(0), b_rows = b.size(0);
    Tensor y = ctx.empty({a_rows + b_rows, a.size(1)}, a.dtype());
    ctx.copy(y.slice(0, 0, a_rows), a);
    ctx.copy(y.slice(0, a_rows, a_rows + b_rows), b);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    auto give = [&](InputGrad& input, int64_t from, int64_t count) {
      if (!input.wanted()) return;
      Tensor part = ctx.empty({count, dy.size(1)}, dy.dtype());
      ctx.copy(part, dy.slice(0, from, from + count));
      input.give(ctx, part);
    };
    give(g[0], 0, a_rows);
    give(g[1], a_rows, b_rows);
  }
};

struct TakeRows {
  int64_t begin = 0, count = 0;
  Shape whole;

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("take_rows", x).with(PlacementRule::pointwise);
  }
  Tensor forward(ExecutionContext&, const Tensor& x) {
    whole = x.shape();
    return x.slice(0, begin, begin + count).detach();
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    if (!g[0].wanted()) return;
    Tensor dx = g[0].accumulator(ctx, whole, dy.dtype()).view(whole);
    ctx.accumulate(dx.slice(0, begin, begin + count), dy);
  }
};

struct AttachLoss {
  float factor = 0;

  MaybePlacement placed(const Tensor& loss, const Tensor& further) const {
    return ResultPlacement("attach_loss", loss).with(PlacementRule::pointwise, further);
  }
  Tensor forward(ExecutionContext&, const Tensor& loss, const Tensor&) { return loss.detach(); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    if (g[1].wanted()) {
      auto [out, accumulate] = g[1].slot(ctx, dy.shape(), dy.dtype());
      ctx.kernels().cast(ctx.stream(), {.src = dy.raw(),
                                        .dst = out.raw(),
                                        .count = dy.numel(),
                                        .scale = factor,
                                        .accumulate = accumulate,
                                        .src_dtype = dy.dtype(),
                                        .dst_dtype = out.dtype()});
    }
    if (g[0].wanted()) g[0].give(ctx, dy);
  }
};

}  // namespace

Tensor join_columns(const Tensor& a, const Tensor& b) {
  MT_CHECK(a.shape().rank() == 2 && b.shape().rank() == 2 && a.size(0) == b.size(0), a.shape(),
           " and ", b.shape());
  MT_CHECK(a.contiguous() && b.contiguous() && a.dtype() == b.dtype(), name(a.dtype()), " and ",
           name(b.dtype()));
  require_kernel(a.context(), a.context().kernels().copy_blocks, "copy_blocks");
  return apply(JoinColumns{}, a, b);
}

Tensor join_rows(const Tensor& a, const Tensor& b) {
  MT_CHECK(a.shape().rank() == 2 && b.shape().rank() == 2 && a.size(1) == b.size(1), a.shape(),
           " and ", b.shape());
  MT_CHECK(a.contiguous() && b.contiguous() && a.dtype() == b.dtype(), name(a.dtype()), " and ",
           name(b.dtype()));
  return apply(JoinRows{}, a, b);
}

Tensor take_rows(const Tensor& x, int64_t begin, int64_t count) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && begin >= 0 && count >= 0 &&
               begin + count <= x.size(0),
           "rows ", begin, " to ", begin + count, " of ", x.shape());
  return apply(TakeRows{.begin = begin, .count = count}, x);
}

Tensor attach_loss(const Tensor& loss, const Tensor& further, float factor) {
  MT_CHECK(loss.shape() == further.shape() && loss.dtype() == DType::f32 &&
               further.dtype() == DType::f32,
           loss.shape(), " ", name(loss.dtype()), " and ", further.shape(), " ",
           name(further.dtype()));
  return apply(AttachLoss{factor}, loss, further);
}

}  // namespace mtrain
