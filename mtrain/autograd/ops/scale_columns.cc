// y = x * g, g = v f + o;  dx = dy * g;  dv = f Σ_t dy x. From basic kernels, in blocks of rows
// that stay in a CPU's cache.
#include <algorithm>

#include "mtrain/autograd/adapter_ops.h"

namespace mtrain {
namespace {

Tensor untaped_float(ExecutionContext& ctx, const Tensor& x) {
  if (x.dtype() == DType::f32) return x.detach();
  Tensor y = ctx.empty(x.shape(), DType::f32);
  ctx.copy(y, x);
  return y;
}

/// to = a * b, float tensors of one size; `to` may be one of them.
void multiply(ExecutionContext& ctx, const Tensor& a, const Tensor& b, const Tensor& to) {
  ctx.kernels().mul(
      ctx.stream(),
      {.a = a.raw(), .b = b.raw(), .y = to.raw(), .count = a.numel(), .dtype = DType::f32});
}

/// The number of rows that are computed at a time. On a device blocks are larger, since each is a
/// launch; the plan of its memory, which is made on the host, does not have the difference of a few
/// times 16 MiB.
int64_t rows_at_once(const ExecutionContext& ctx, int64_t rows, int64_t cols) {
  const int64_t elements = ctx.backend().host_memory() ? 1 << 16 : 1 << 22;
  return std::min(std::max<int64_t>(1, elements / cols), rows);
}

/// Each row is `row`.
Tensor repeated(ExecutionContext& ctx, const Tensor& row, int64_t rows) {
  Tensor out = ctx.empty({rows, row.numel()}, DType::f32);
  ctx.kernels().copy_blocks(ctx.stream(), {.src = row.raw(),
                                           .dst = out.raw(),
                                           .outer = rows,
                                           .inner = 1,
                                           .count = row.numel(),
                                           .src_outer = 0,
                                           .src_inner = 0,
                                           .dst_outer = row.numel(),
                                           .dst_inner = 0,
                                           .accumulate = false,
                                           .dtype = DType::f32});
  return out;
}

/// x * gain in every row.
Tensor scaled_columns(ExecutionContext& ctx, const Tensor& x, const Tensor& gain) {
  const int64_t rows = x.size(0), cols = x.size(1), step = rows_at_once(ctx, rows, cols);
  const Tensor gains = repeated(ctx, gain, step);
  Tensor y = ctx.empty(x.shape(), x.dtype());
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t end = std::min(row + step, rows);
    const Tensor from = x.slice(0, row, end), to = y.slice(0, row, end),
                 its_gains = gains.slice(0, 0, end - row);
    if (x.dtype() == DType::f32) {
      multiply(ctx, from, its_gains, to);
      continue;
    }
    const Tensor wide = untaped_float(ctx, from);
    multiply(ctx, wide, its_gains, wide);
    ctx.copy(to, wide);
  }
  return y;
}

/// out[c] (+)= Σ_r dy[r,c] x[r,c]: the gradient of a norm's weight, for rows whose factor is 1.
void column_dots(ExecutionContext& ctx, const Tensor& dy, const Tensor& x, const Tensor& out,
                 bool accumulate) {
  const Tensor ones = ctx.empty({x.size(0)}, DType::f32);
  ctx.fill(ones, 1);
  ctx.kernels().rms_norm_backward(ctx.stream(), {.dy = dy.raw(),
                                                 .x = x.raw(),
                                                 .w = nullptr,
                                                 .rstd = ones.data<float>(),
                                                 .dx = nullptr,
                                                 .dw = out.data<float>(),
                                                 .rows = x.size(0),
                                                 .cols = x.size(1),
                                                 .accumulate_dx = false,
                                                 .accumulate_dw = accumulate,
                                                 .dtype = x.dtype(),
                                                 .offset = 1});
}

struct ScaleColumns {
  ColumnGain how = {};
  Tensor x = {}, gain = {};

  MaybePlacement placed(const Tensor& in, const Tensor& v) const {
    return ResultPlacement("scale_columns", in)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::bias, v);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& v) {
    if (v.node()) x = x_in.detach();
    gain = untaped_float(ctx, v);
    if (how.factor.defined()) {
      const Tensor product = ctx.empty(gain.shape(), DType::f32);
      multiply(ctx, gain, how.factor, product);
      gain = product;
    }
    if (how.offset.defined()) {
      const Tensor sum = ctx.empty(gain.shape(), DType::f32);
      ctx.copy(sum, how.offset);
      ctx.accumulate(sum, gain);
      gain = sum;
    }
    return scaled_columns(ctx, x_in, gain);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    if (g[0].wanted()) g[0].give(ctx, scaled_columns(ctx, dy, gain));
    if (!g[1].wanted()) return;
    g[1].compute([&ctx, dy, x = x, factor = how.factor](InputGrad& v) {
      auto [dv, accumulate] = v.slot(ctx, {x.size(1)}, DType::f32);
      MT_CHECK(dv.dtype() == DType::f32, "the factors of columns must be a parameter");
      if (!factor.defined()) return column_dots(ctx, dy, x, dv, accumulate);
      const Tensor dots = ctx.empty({x.size(1)}, DType::f32);
      column_dots(ctx, dy, x, dots, false);
      multiply(ctx, dots, factor, dots);
      accumulate ? ctx.accumulate(dv, dots) : ctx.copy(dv, dots);
    });
  }
};

struct TimesColumns {
  Tensor factors = {};

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("times_columns", x).unsharded(1, "each column has a factor of its own");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) { return scaled_columns(ctx, x, factors); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    if (g[0].wanted()) g[0].give(ctx, scaled_columns(ctx, dy, factors));
  }
};

}  // namespace

Tensor times_columns(const Tensor& x, const Tensor& factors) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && factors.dtype() == DType::f32 &&
               factors.numel() == x.size(1),
           "x ", x.shape(), ", factors ", factors.shape());
  return apply(TimesColumns{.factors = factors}, x);
}

Tensor scale_columns(const Tensor& x, const Tensor& v, const ColumnGain& gain) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && v.contiguous() && v.numel() == x.size(1),
           "x ", x.shape(), ", factors ", v.shape());
  for (const Tensor& t : {gain.factor, gain.offset})
    MT_CHECK(!t.defined() || (t.dtype() == DType::f32 && t.numel() == x.size(1)), "constants of ",
             x.size(1), " columns");
  require_kernel(x.context(), x.context().kernels().rms_norm_backward, "rms_norm_backward");
  return apply(ScaleColumns{.how = gain}, x, v);
}

Tensor dots_of_rows(const Tensor& a, const Tensor& b, const Tensor& numbers) {
  MT_CHECK(a.shape() == b.shape() && a.shape().rank() == 2 && a.dtype() == b.dtype() &&
               a.contiguous() && b.contiguous() && numbers.numel() == a.size(0),
           a.shape(), " ", name(a.dtype()), " vs ", b.shape(), " ", name(b.dtype()));
  ExecutionContext& ctx = a.context();
  require_kernel(ctx, ctx.kernels().row_dots, "row_dots");
  Tensor out = ctx.empty({a.size(0)}, DType::f32);
  ctx.kernels().row_dots(ctx.stream(), {.a = a.raw(),
                                        .b = b.raw(),
                                        .source = numbers.data<int32_t>(),
                                        .out = out.data<float>(),
                                        .rows = a.size(0),
                                        .cols = a.size(1),
                                        .group = 1,
                                        .fan = 1,
                                        .dtype = a.dtype()});
  return out;
}

}  // namespace mtrain
