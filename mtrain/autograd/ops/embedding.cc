// y[t] = table[ids[t]];  d_table[ids[t]] += dy[t].
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

struct Embedding {
  Tensor ids;
  int64_t first_row = 0, rows = 0;

  // Ids without a placement are the same on all ranks. With a sharded table, a rank returns the
  // rows that it holds and 0 elsewhere.
  MaybePlacement placed(const Tensor& table) const {
    ResultPlacement y("embedding", table);
    bool own_tokens = ids.placement() == Placement::S(0);
    if (own_tokens)
      return y.turn(Placement::R(), Placement::S(0), "its gradient is of a rank's own tokens only");
    return table.placement() == Placement::S(0) ? y.turn(Placement::S(0), Placement::P(), "")
                                                : y.with(PlacementRule::pointwise);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& table) {
    rows = table.size(0);
    Tensor y = ctx.empty({ids.size(0), table.size(1)}, table.dtype());
    ctx.kernels().embedding(ctx.stream(), {.table = table.raw(),
                                           .ids = ids.data<int32_t>(),
                                           .y = y.raw(),
                                           .tokens = ids.size(0),
                                           .rows = rows,
                                           .cols = table.size(1),
                                           .dtype = table.dtype(),
                                           .first_row = first_row});
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].compute([&ctx, dy, ids = ids, rows = rows, first_row = first_row](InputGrad& table) {
      Tensor d_table = table.accumulator(ctx, {rows, dy.size(1)}, DType::f32);
      ctx.kernels().embedding_backward(ctx.stream(), {.dy = dy.raw(),
                                                      .ids = ids.data<int32_t>(),
                                                      .d_table = d_table.data<float>(),
                                                      .tokens = ids.size(0),
                                                      .rows = rows,
                                                      .cols = dy.size(1),
                                                      .dtype = dy.dtype(),
                                                      .first_row = first_row});
    });
  }
};

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, int64_t first_row) {
  MT_CHECK(table.shape().rank() == 2 && ids.shape().rank() == 1 && table.contiguous(), "table ",
           table.shape(), ", ids ", ids.shape());
  require_kernel(table.context(), table.context().kernels().embedding, "embedding");
  return apply(Embedding{.ids = ids, .first_row = first_row}, table);
}

}  // namespace mtrain
