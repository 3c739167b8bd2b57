// y = x wᵀ + b + r;  dx = dy w;  dw += dyᵀ x;  db += Σ_t dy;  dr = dy.
#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

struct Linear {
  Tensor x, w;  // x: only for the gradient of w
  Shape x_shape;
  DType dtype = DType::f32;  // of x

  MaybePlacement placed(const Tensor& in, const Tensor& weight, const Tensor& b,
                        const Tensor& residual) const {
    return ResultPlacement("linear", in)
        .with(PlacementRule::linear, weight)
        .with(PlacementRule::bias, b)
        .with(PlacementRule::add, residual);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b,
                 const Tensor& residual) {
    if (w_in.node()) x = x_in.detach();
    w = w_in.detach();
    x_shape = x_in.shape(), dtype = x_in.dtype();
    Tensor y = ctx.empty({x_in.size(0), w.size(0)}, dtype);
    linear_forward(ctx, x_in, w, b, residual, y);
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<4>& g) {
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x_shape, dtype);
      linear_input_gradient(ctx, dy, w, dx, accumulate);
    }
    if (g[1].wanted())
      g[1].compute([&ctx, dy, x = x, w = w](InputGrad& weight) {
        auto [dw, accumulate] = weight.slot(ctx, w.shape(), w.dtype());
        linear_weight_gradient(ctx, dy, x, dw, accumulate);
      });
    if (g[2].wanted()) g[2].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
    if (g[3].wanted()) g[3].give(ctx, dy);
  }
};

struct QuantizedLinear {
  const QuantizedProducts* how = nullptr;
  QuantizedProducts::Operand x, w;  // x: only for the gradient of w
  int64_t first_token = 0;
  Shape x_shape = {};
  DType dtype = DType::f32;  // of x

  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b,
                 const Tensor& residual) {
    x = how->prepare(ctx, x_in.detach(), QuantOperand::input);
    w = how->prepare(ctx, w_in.detach(), QuantOperand::weight);
    first_token = ctx.first_token;
    Tensor y = ctx.empty({x_in.size(0), w_in.size(0)}, x_in.dtype());
    how->forward(ctx, x, w, b, residual, y);
    x_shape = x_in.shape(), dtype = x_in.dtype();
    if (!w_in.node()) x = {};
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<4>& g) {
    QuantizedProducts::Operand top = how->prepare(ctx, dy, QuantOperand::gradient);
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x_shape, dtype);
      how->input_gradient(ctx, top, w, dx, accumulate, first_token);
    }
    if (g[1].wanted())
      g[1].compute([&ctx, top, op = *this](InputGrad& weight) {
        auto [dw, accumulate] = weight.slot(ctx, op.w.x.shape(), op.w.x.dtype());
        op.how->weight_gradient(ctx, top, op.x, dw, accumulate, op.first_token);
      });
    if (g[2].wanted()) g[2].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
    if (g[3].wanted()) g[3].give(ctx, dy);
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& residual,
              const QuantizedProducts* quantized) {
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.size(1) == w.size(1), "x ",
           x.shape(), ", w ", w.shape());
  check_types(x, w, quantized);
  MT_CHECK(!b.defined() || (b.numel() == w.size(0) && b.contiguous()), "bias of ", w.size(0),
           " outputs");
  MT_CHECK(!residual.defined() || (residual.shape() == Shape{x.size(0), w.size(0)} &&
                                   residual.contiguous() && residual.dtype() == x.dtype()),
           "a residual ", residual.defined() ? residual.shape() : Shape{}, " for [", x.size(0),
           ", ", w.size(0), "]");
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
  if (quantized) return apply(QuantizedLinear{.how = quantized}, x, w, b, residual);
  return apply(Linear{}, x, w, b, residual);
}

}  // namespace mtrain
