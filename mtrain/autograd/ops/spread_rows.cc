// y[n, m*R + j] = table[rows[n*M + m], j];  d_table[rows[n*M + m], j] += dy[n, m*R + j].
#include "mtrain/autograd/adapter_ops.h"

namespace mtrain {
namespace {

struct SpreadRows {
  Tensor rows;
  int64_t table_rows = 0, width = 0;

  MaybePlacement placed(const Tensor& table) const {
    return ResultPlacement("spread_rows", table).with(PlacementRule::pointwise);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& table) {
    table_rows = table.size(0), width = table.size(1);
    Tensor y = ctx.empty({table_rows, rows.numel() / table_rows * width}, table.dtype());
    ctx.kernels().embedding(ctx.stream(), {.table = table.raw(),
                                           .ids = rows.data<int32_t>(),
                                           .y = y.raw(),
                                           .tokens = rows.numel(),
                                           .rows = table_rows,
                                           .cols = width,
                                           .dtype = table.dtype(),
                                           .first_row = 0});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor d_table = g[0].accumulator(ctx, {table_rows, width}, DType::f32);
    ctx.kernels().embedding_backward(ctx.stream(), {.dy = dy.raw(),
                                                    .ids = rows.data<int32_t>(),
                                                    .d_table = d_table.data<float>(),
                                                    .tokens = rows.numel(),
                                                    .rows = table_rows,
                                                    .cols = width,
                                                    .dtype = dy.dtype(),
                                                    .first_row = 0});
  }
};

}  // namespace

Tensor spread_rows(const Tensor& table, const Tensor& rows) {
  MT_CHECK(table.shape().rank() == 2 && rows.shape().rank() == 1 && table.contiguous() &&
               rows.numel() % table.size(0) == 0,
           "table ", table.shape(), ", rows ", rows.shape());
  require_kernel(table.context(), table.context().kernels().embedding, "embedding");
  return apply(SpreadRows{.rows = rows}, table);
}

}  // namespace mtrain
