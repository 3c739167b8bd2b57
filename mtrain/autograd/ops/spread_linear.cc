// y = r + x wᵀ with w[n, m*R + j] = table[rows[n*M + m], j];
// dx = dy w;  dw = dyᵀ x;  d_table[rows[n*M + m], j] += dw[n, m*R + j];  dr = dy.
#include "mtrain/autograd/adapter_ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

struct SpreadLinear {
  Tensor rows = {};
  Tensor x = {}, w = {};
  int64_t table_rows = 0, width = 0;

  MaybePlacement placed(const Tensor& in, const Tensor& table, const Tensor& residual) const {
    return ResultPlacement("spread_linear", in)
        .with(PlacementRule::linear, table)
        .with(PlacementRule::add, residual);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& table,
                 const Tensor& residual) {
    table_rows = table.size(0), width = table.size(1);
    x = x_in.detach();
    w = ctx.empty({table_rows, x.size(1)}, table.dtype());
    ctx.kernels().embedding(ctx.stream(), {.table = table.raw(),
                                           .ids = rows.data<int32_t>(),
                                           .y = w.raw(),
                                           .tokens = rows.numel(),
                                           .rows = table_rows,
                                           .cols = width,
                                           .dtype = table.dtype(),
                                           .first_row = 0});
    Tensor y = ctx.empty({x.size(0), table_rows}, x.dtype());
    linear_forward(ctx, x, w, {}, residual, y);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x.shape(), x.dtype());
      linear_input_gradient(ctx, dy, w, dx, accumulate);
    }
    if (g[1].wanted())
      g[1].compute([&ctx, dy, op = *this](InputGrad& table) {
        const Tensor dw = ctx.empty(op.w.shape(), DType::f32);
        linear_weight_gradient(ctx, dy, op.x, dw, false);
        const Tensor d_table = table.accumulator(ctx, {op.table_rows, op.width}, DType::f32);
        ctx.kernels().embedding_backward(ctx.stream(), {.dy = dw.raw(),
                                                        .ids = op.rows.data<int32_t>(),
                                                        .d_table = d_table.data<float>(),
                                                        .tokens = op.rows.numel(),
                                                        .rows = op.table_rows,
                                                        .cols = op.width,
                                                        .dtype = DType::f32,
                                                        .first_row = 0});
      });
    if (g[2].wanted()) g[2].give(ctx, dy);
  }
};

}  // namespace

Tensor spread_linear(const Tensor& x, const Tensor& table, const Tensor& rows,
                     const Tensor& residual) {
  MT_CHECK(table.shape().rank() == 2 && rows.shape().rank() == 1 && table.contiguous() &&
               rows.numel() % table.size(0) == 0 && x.contiguous() && x.shape().rank() == 2 &&
               x.size(1) == rows.numel() / table.size(0) * table.size(1),
           "x ", x.shape(), ", table ", table.shape(), ", rows ", rows.shape());
  MT_CHECK(residual.contiguous() && (residual.shape() == Shape{x.size(0), table.size(0)}),
           "a residual ", residual.shape());
  require_kernel(x.context(), x.context().kernels().embedding, "embedding");
  return apply(SpreadLinear{.rows = rows}, x, table, residual);
}

}  // namespace mtrain
