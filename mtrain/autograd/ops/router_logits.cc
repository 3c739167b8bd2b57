// The router's logits, a product in float, bf16 or double for any dtype of the stream:
// y = x wᵀ + b;  dx = dy w;  dw += dyᵀ x;  db += Σ_t dy.
#include "mtrain/autograd/expert_ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

MaybePlacement logits_placement(const Tensor& in, const Tensor& weight, const Tensor& b) {
  return ResultPlacement("router_logits", in)
      .with(PlacementRule::linear, weight)
      .with(PlacementRule::bias, b);
}

struct RouterLogits {
  DType computed = DType::f32;
  Tensor x, w;  // as given; their copies in `computed` are made again in backward

  MaybePlacement placed(const Tensor& in, const Tensor& weight, const Tensor& b) const {
    return logits_placement(in, weight, b);
  }
  static Tensor in(ExecutionContext& ctx, DType dtype, const Tensor& t) {
    if (t.dtype() == dtype) return t;
    Tensor out = ctx.empty(t.shape(), dtype);
    ctx.copy(out, t);
    return out;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    x = x_in.detach();
    w = w_in.detach();
    Tensor y = ctx.empty({x.size(0), w.size(0)}, computed);
    linear_forward(ctx, in(ctx, computed, x), in(ctx, computed, w), b, {}, y);
    return in(ctx, DType::f32, y);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy_in, Grads<3>& g) {
    Tensor dy = in(ctx, computed, dy_in);
    if (g[2].wanted()) g[2].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x.shape(), x.dtype());
      linear_input_gradient(ctx, dy, in(ctx, computed, w), dx, accumulate);
    }
    if (g[1].wanted())
      g[1].compute([&ctx, dy, x = x, w = w](InputGrad& weight) {
        auto [dw, accumulate] = weight.slot(ctx, w.shape(), w.dtype());
        linear_weight_gradient(ctx, dy, in(ctx, dy.dtype(), x), dw, accumulate);
      });
  }
};

/// In double. The operands stay as given: the kernel converts them.
struct DoubleLogits {
  Tensor x, w;

  MaybePlacement placed(const Tensor& in, const Tensor& weight, const Tensor& b) const {
    return logits_placement(in, weight, b);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    x = x_in.detach();
    w = w_in.detach();
    Tensor y = ctx.empty({x.size(0), w.size(0)}, DType::f64);
    ctx.kernels().double_gemm(ctx.stream(), {.a = x.raw(),
                                             .b = w.raw(),
                                             .c = y.raw(),
                                             .bias = b.defined() ? b.raw() : nullptr,
                                             .transpose_b = true,
                                             .m = x.size(0),
                                             .n = w.size(0),
                                             .k = x.size(1),
                                             .a_dtype = x.dtype(),
                                             .b_dtype = w.dtype(),
                                             .bias_dtype = b.defined() ? b.dtype() : DType::f32});
    return y;
  }
  /// out[M,D] (+)= op(a)[M,K] · b[K,D].
  static void product(ExecutionContext& ctx, const Tensor& a, bool transposed, const Tensor& b,
                      const InputGrad::Slot& out) {
    ctx.kernels().double_gemm(ctx.stream(), {.a = a.raw(),
                                             .b = b.raw(),
                                             .c = out.out.raw(),
                                             .transpose_a = transposed,
                                             .accumulate = out.accumulate,
                                             .m = a.size(transposed ? 1 : 0),
                                             .n = b.size(1),
                                             .k = b.size(0),
                                             .a_dtype = a.dtype(),
                                             .b_dtype = b.dtype(),
                                             .c_dtype = out.out.dtype()});
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (g[2].wanted())
      g[2].compute([&ctx, dy](InputGrad& bias) {
        Tensor ones = ctx.empty({1, dy.size(0)}, DType::f32);
        ctx.fill(ones, 1);
        product(ctx, ones, false, dy, bias.slot(ctx, {dy.size(1)}, DType::f32));
      });
    if (g[0].wanted()) product(ctx, dy, false, w, g[0].slot(ctx, x.shape(), x.dtype()));
    if (g[1].wanted())
      g[1].compute([&ctx, dy, x = x, w = w](InputGrad& weight) {
        product(ctx, dy, true, x, weight.slot(ctx, w.shape(), w.dtype()));
      });
  }
};

}  // namespace

Tensor router_logits(const Tensor& x, const Tensor& w, const Tensor& b, DType computed) {
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.size(1) == w.size(1), "x ",
           x.shape(), ", w ", w.shape());
  MT_CHECK(x.contiguous() && w.contiguous() && x.dtype() == w.dtype(), name(x.dtype()), " vs ",
           name(w.dtype()));
  MT_CHECK(!b.defined() || (b.numel() == w.size(0) && b.contiguous()), "bias of ", w.size(0),
           " experts");
  if (computed == DType::f64) {
    require_kernel(x.context(), x.context().kernels().double_gemm, "double_gemm");
    return apply(DoubleLogits{}, x, w, b);
  }
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
  MT_CHECK(computed == DType::f32 || (computed == DType::bf16 && x.dtype() != DType::f16),
           "logits in ", name(computed), " of ", name(x.dtype()));
  return apply(RouterLogits{.computed = computed}, x, w, b);
}

}  // namespace mtrain
