// join_columns copies every element once; attach_loss copies nothing in forward.
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

Tensor attach_loss(const Tensor& loss, const Tensor& further, float factor) {
  MT_CHECK(loss.shape() == further.shape() && loss.dtype() == DType::f32 &&
               further.dtype() == DType::f32,
           loss.shape(), " ", name(loss.dtype()), " and ", further.shape(), " ",
           name(further.dtype()));
  return apply(AttachLoss{factor}, loss, further);
}

}  // namespace mtrain
