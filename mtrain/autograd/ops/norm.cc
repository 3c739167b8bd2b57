// RMSNorm and LayerNorm, per token. Statistics are saved in float for backward.
#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/compositions.h"

namespace mtrain {
namespace {

/// A norm without weight has the placement of one whose weight is the same on every rank.
ResultPlacement placed_norm(std::string_view op, const Tensor& x, const Tensor& weight) {
  if (weight.defined()) return ResultPlacement(op, x).with(PlacementRule::norm, weight);
  return ResultPlacement(op, x)
      .with(PlacementRule::pointwise)
      .unsharded(1, "a norm is of whole rows");
}

struct RmsNorm {  // y = (w + offset) * x * rstd,  rstd = 1/sqrt(mean(x²) + eps)
  float eps = 0, offset = 0;
  Tensor x, w, rstd;

  MaybePlacement placed(const Tensor& in, const Tensor& weight) const {
    return placed_norm("rms_norm", in, weight);
  }
  Tensor composition(const Tensor& in, const Tensor& weight) const {
    return plain::rms_norm(in, weight, eps, offset);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in) {
    x = x_in.detach();
    if (w_in.defined()) w = w_in.detach();
    rstd = ctx.empty({x.size(0)}, DType::f32);
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().rms_norm(ctx.stream(), {.x = x.raw(),
                                          .w = w.defined() ? w.raw() : nullptr,
                                          .y = y.raw(),
                                          .rstd = rstd.data<float>(),
                                          .rows = x.size(0),
                                          .cols = x.size(1),
                                          .eps = eps,
                                          .dtype = x.dtype(),
                                          .offset = offset});
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    InputGrad::Slot dx{}, dw{};
    if (g[0].wanted()) dx = g[0].slot(ctx, x.shape(), x.dtype());
    if (g[1].wanted()) dw = g[1].slot(ctx, w.shape(), DType::f32);
    ctx.kernels().rms_norm_backward(ctx.stream(),
                                    {.dy = dy.raw(),
                                     .x = x.raw(),
                                     .w = w.defined() ? w.raw() : nullptr,
                                     .rstd = rstd.data<float>(),
                                     .dx = dx.out.defined() ? dx.out.raw() : nullptr,
                                     .dw = dw.out.defined() ? dw.out.data<float>() : nullptr,
                                     .rows = x.size(0),
                                     .cols = x.size(1),
                                     .accumulate_dx = dx.accumulate,
                                     .accumulate_dw = dw.accumulate,
                                     .dtype = x.dtype(),
                                     .offset = offset});
  }
};

struct LayerNorm {  // y = (w + offset) * (x - mean) * rstd + b
  float eps = 0, offset = 0;
  Tensor x, w, b, mean, rstd;

  MaybePlacement placed(const Tensor& in, const Tensor& weight, const Tensor& bias) const {
    return placed_norm("layer_norm", in, weight).with(PlacementRule::bias, bias);
  }
  Tensor composition(const Tensor& in, const Tensor& weight, const Tensor& bias) const {
    return plain::layer_norm(in, weight, bias, eps, offset);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in,
                 const Tensor& b_in) {
    x = x_in.detach();
    if (w_in.defined()) w = w_in.detach();
    if (b_in.defined()) b = b_in.detach();
    mean = ctx.empty({x.size(0)}, DType::f32);
    rstd = ctx.empty({x.size(0)}, DType::f32);
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().layer_norm(ctx.stream(), {.x = x.raw(),
                                            .w = w.defined() ? w.raw() : nullptr,
                                            .b = b.defined() ? b.raw() : nullptr,
                                            .y = y.raw(),
                                            .mean = mean.data<float>(),
                                            .rstd = rstd.data<float>(),
                                            .rows = x.size(0),
                                            .cols = x.size(1),
                                            .eps = eps,
                                            .dtype = x.dtype(),
                                            .offset = offset});
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    InputGrad::Slot dx{}, dw{}, db{};
    if (g[0].wanted()) dx = g[0].slot(ctx, x.shape(), x.dtype());
    if (g[1].wanted()) dw = g[1].slot(ctx, w.shape(), DType::f32);
    if (g[2].wanted()) db = g[2].slot(ctx, b.shape(), DType::f32);
    ctx.kernels().layer_norm_backward(ctx.stream(),
                                      {.dy = dy.raw(),
                                       .x = x.raw(),
                                       .w = w.defined() ? w.raw() : nullptr,
                                       .mean = mean.data<float>(),
                                       .rstd = rstd.data<float>(),
                                       .dx = dx.out.defined() ? dx.out.raw() : nullptr,
                                       .dw = dw.out.defined() ? dw.out.data<float>() : nullptr,
                                       .db = db.out.defined() ? db.out.data<float>() : nullptr,
                                       .rows = x.size(0),
                                       .cols = x.size(1),
                                       .accumulate_dx = dx.accumulate,
                                       .accumulate_dw = dw.accumulate,
                                       .accumulate_db = db.accumulate,
                                       .dtype = x.dtype(),
                                       .offset = offset});
  }
};

void check_norm(const Tensor& x, const Tensor& w, float offset) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous(), "x ", x.shape());
  MT_CHECK(w.defined() || offset != 0, "a norm with neither a weight nor an offset is 0");
  if (!w.defined()) return;
  MT_CHECK(w.numel() == x.size(1), "x ", x.shape(), ", w ", w.shape());
  MT_CHECK(x.dtype() == w.dtype(), name(x.dtype()), " vs ", name(w.dtype()));
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& w, float eps, float offset) {
  check_norm(x, w, offset);
  const KernelTable& kernels = x.context().kernels();
  return apply_or_compose(kernels.rms_norm && kernels.rms_norm_backward,
                          RmsNorm{.eps = eps, .offset = offset}, x, w);
}

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, float eps, float offset) {
  check_norm(x, w, offset);
  MT_CHECK(!b.defined() || (b.numel() == x.size(1) && b.dtype() == x.dtype()), b.shape());
  const KernelTable& kernels = x.context().kernels();
  return apply_or_compose(kernels.layer_norm && kernels.layer_norm_backward,
                          LayerNorm{.eps = eps, .offset = offset}, x, w, b);
}

}  // namespace mtrain
