// y = x wᵀ + b + r;  dx = dy w;  db += Σ_t dy;  dr = dy. Forward and backward decode w.
#include "mtrain/autograd/coded_weight.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

struct CodedLinear {
  CodedWeight w = {};
  Shape x_shape = {};
  DType dtype = DType::f32;  // of x

  MaybePlacement placed(const Tensor& in, const Tensor& codes, const Tensor& b,
                        const Tensor& residual) const {
    return ResultPlacement("linear", in)
        .with(PlacementRule::linear, codes)
        .with(PlacementRule::bias, b)
        .with(PlacementRule::add, residual);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x, const Tensor&, const Tensor& b,
                 const Tensor& residual) {
    x_shape = x.shape(), dtype = x.dtype();
    Tensor y = ctx.empty({x.size(0), w.rows}, dtype);
    linear_forward(ctx, x, w.decode(ctx, dtype), b, residual, y);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<4>& g) {
    if (g[0].wanted()) {
      const Tensor decoded = w.decode(ctx, dtype);
      auto [dx, accumulate] = g[0].slot(ctx, x_shape, dtype);
      linear_input_gradient(ctx, dy, decoded, dx, accumulate);
    }
    if (g[2].wanted()) g[2].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
    if (g[3].wanted()) g[3].give(ctx, dy);
  }
};

}  // namespace

Tensor CodedWeight::decode(ExecutionContext& ctx, DType dtype) const {
  require_kernel(ctx, ctx.kernels().decode_weight, "decode_weight");
  const Tensor w = ctx.empty({rows, cols}, dtype);
  const bool nested = !scales.defined();
  ctx.kernels().decode_weight(ctx.stream(),
                              {.codes = codes.data<uint8_t>(),
                               .scales = nested ? nullptr : scales.data<float>(),
                               .scale_codes = nested ? scale_codes.data<uint8_t>() : nullptr,
                               .groups = nested ? groups.data<float>() : nullptr,
                               .first_block = nested ? first_block.data<int32_t>() : nullptr,
                               .w = w.raw(),
                               .rows = rows,
                               .cols = cols,
                               .format = format,
                               .dtype = dtype});
  return w;
}

Tensor linear(const Tensor& x, const CodedWeight& weight, const Tensor& codes, const Tensor& b,
              const Tensor& residual) {
  MT_CHECK(x.shape().rank() == 2 && x.size(1) == weight.cols && x.contiguous(), "x ", x.shape(),
           ", w [", weight.rows, ", ", weight.cols, "]");
  MT_CHECK(!b.defined() || (b.numel() == weight.rows && b.contiguous()), "bias of ", weight.rows,
           " outputs");
  MT_CHECK(!residual.defined() || (residual.shape() == Shape{x.size(0), weight.rows} &&
                                   residual.contiguous() && residual.dtype() == x.dtype()),
           "a residual for [", x.size(0), ", ", weight.rows, "]");
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
  return apply(CodedLinear{.w = weight}, x, codes, b, residual);
}

}  // namespace mtrain
