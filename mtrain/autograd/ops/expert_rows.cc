// Dispatch of tokens to rows of experts and back:
//   gather   y[i] = x[from[i]];  dx[t] = Σ_j dy[to[t,j]]
//   combine  y[t] = r[t] + Σ_j w[t,j] x[to[t,j]];  dx[i] = w[slot i] dy[token of i];
//            dw[t,j] = <dy[t], x[to[t,j]]>;  dr = dy
#include <vector>

#include "mtrain/autograd/expert_ops.h"

namespace mtrain {
namespace {

struct GatherRows {
  RowMap map;
  int64_t rows = 0;

  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    rows = x.size(0);
    Tensor y = ctx.empty({map.from.numel(), x.size(1)}, x.dtype());
    ctx.kernels().embedding(ctx.stream(), {.table = x.raw(),
                                           .ids = map.from.data<int32_t>(),
                                           .y = y.raw(),
                                           .tokens = y.size(0),
                                           .rows = rows,
                                           .cols = x.size(1),
                                           .dtype = x.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    auto [dx, accumulate] = g[0].slot(ctx, {rows, dy.size(1)}, dy.dtype());
    ctx.kernels().gather_sum(ctx.stream(), {.x = dy.raw(),
                                            .source = map.to.data<int32_t>(),
                                            .addend = accumulate ? dx.raw() : nullptr,
                                            .y = dx.raw(),
                                            .rows = rows,
                                            .cols = dy.size(1),
                                            .fan = map.to.size(1),
                                            .dtype = dy.dtype()});
  }
};

struct CombineRows {
  CombineMap map;
  Tensor x, weights;

  // The rows have no placement (they depend on where the experts are); the tokens are placed like
  // the weights.
  MaybePlacement placed(const Tensor&, const Tensor& of_tokens, const Tensor& addend) const {
    return ResultPlacement("combine_rows", of_tokens)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::add, addend);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& weights_in,
                 const Tensor& addend) {
    x = x_in.detach();
    weights = weights_in.detach();
    const Tensor& to = map.rows.to;
    Tensor y = ctx.empty({to.size(0), x.size(1)}, x.dtype());
    Tensor term_weight = term_weights(ctx);
    ctx.kernels().gather_sum(
        ctx.stream(), {.x = x.raw(),
                       .source = to.data<int32_t>(),
                       .weights = weights.data<float>(),
                       .weight_of = term_weight.defined() ? term_weight.data<int32_t>() : nullptr,
                       .addend = addend.defined() ? addend.raw() : nullptr,
                       .y = y.raw(),
                       .rows = to.size(0),
                       .cols = x.size(1),
                       .fan = to.size(1),
                       .dtype = x.dtype()});
    return y;
  }
  /// The index in `weights` of each term of a sum; undefined if it equals the number of the term.
  Tensor term_weights(ExecutionContext& ctx) const {
    if (map.copies == 1) return {};
    std::vector<int32_t> at(static_cast<size_t>(map.rows.to.numel()));
    for (size_t i = 0; i < at.size(); ++i)
      at[i] = static_cast<int32_t>(static_cast<int64_t>(i) / map.copies);
    return ctx.from_host<int32_t>(at, map.rows.to.shape());
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x.shape(), x.dtype());
      ctx.kernels().gather_sum(ctx.stream(), {.x = dy.raw(),
                                              .source = map.rows.from.data<int32_t>(),
                                              .weights = weights.data<float>(),
                                              .weight_of = map.slot.data<int32_t>(),
                                              .addend = accumulate ? dx.raw() : nullptr,
                                              .y = dx.raw(),
                                              .rows = x.size(0),
                                              .cols = x.size(1),
                                              .fan = 1,
                                              .dtype = x.dtype()});
    }
    if (g[1].wanted()) {
      Tensor dw = ctx.empty(weights.shape(), DType::f32);
      ctx.kernels().row_dots(ctx.stream(), {.a = dy.raw(),
                                            .b = x.raw(),
                                            .source = map.rows.to.data<int32_t>(),
                                            .out = dw.data<float>(),
                                            .rows = dw.numel(),
                                            .cols = x.size(1),
                                            .group = weights.size(1),
                                            .fan = map.copies,
                                            .dtype = x.dtype()});
      g[1].give(ctx, dw);
    }
    if (g[2].wanted()) g[2].give(ctx, dy);
  }
};

}  // namespace

Tensor gather_rows(const Tensor& x, const RowMap& map) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous(), x.shape());
  MT_CHECK(map.to.shape().rank() == 2 && map.to.size(0) == x.size(0), "to ", map.to.shape(),
           " for ", x.shape());
  require_kernel(x.context(), x.context().kernels().embedding, "embedding");
  require_kernel(x.context(), x.context().kernels().gather_sum, "gather_sum");
  return apply(GatherRows{.map = map}, x);
}

Tensor combine_rows(const Tensor& x, const Tensor& weights, const CombineMap& map,
                    const Tensor& addend) {
  const Tensor& to = map.rows.to;
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && map.rows.from.numel() == x.size(0) &&
               map.slot.numel() == x.size(0),
           x.shape(), " with a map of ", map.rows.from.numel());
  MT_CHECK(weights.shape().rank() == 2 && weights.dtype() == DType::f32 &&
               to.size(0) == weights.size(0) && to.size(1) == weights.size(1) * map.copies,
           "weights ", weights.shape(), ", to ", to.shape(), ", ", map.copies, " copies");
  MT_CHECK(!addend.defined() || (addend.shape() == Shape{to.size(0), x.size(1)} &&
                                 addend.contiguous() && addend.dtype() == x.dtype()),
           "an addend for [", to.size(0), ", ", x.size(1), "]");
  require_kernel(x.context(), x.context().kernels().gather_sum, "gather_sum");
  require_kernel(x.context(), x.context().kernels().row_dots, "row_dots");
  return apply(CombineRows{.map = map}, x, weights, addend);
}

}  // namespace mtrain
