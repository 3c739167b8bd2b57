// y = x wᵀ + b;  dx = dy w;  dw += dyᵀ x;  db += Σ_t dy.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

struct Linear {
  Tensor x, w;
  DType bias_dtype = DType::f32;

  Tensor forward(Run& run, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    x = x_in.detach();
    w = w_in.detach();
    int64_t tokens = x.size(0), in = x.size(1), out = w.size(0);
    Tensor y = run.empty({tokens, out}, x.dtype());
    run.kernels().gemm(run.stream(), {.a = x.raw(),
                                      .b = w.raw(),
                                      .c = y.raw(),
                                      .bias = b.defined() ? b.raw() : nullptr,
                                      .transpose_b = true,
                                      .m = tokens,
                                      .n = out,
                                      .k = in,
                                      .lda = in,
                                      .ldb = in,
                                      .ldc = out,
                                      .dtype = x.dtype(),
                                      .c_dtype = x.dtype(),
                                      .bias_dtype = b.defined() ? b.dtype() : DType::f32});
    return y;
  }

  void backward(Run& run, const Tensor& dy, Grads<3>& g) {
    int64_t tokens = x.size(0), in = x.size(1), out = w.size(0);
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(run, x.shape(), x.dtype());
      run.kernels().gemm(run.stream(), {.a = dy.raw(),
                                        .b = w.raw(),
                                        .c = dx.raw(),
                                        .m = tokens,
                                        .n = in,
                                        .k = out,
                                        .lda = out,
                                        .ldb = in,
                                        .ldc = in,
                                        .beta = accumulate ? 1.0f : 0.0f,
                                        .dtype = dy.dtype(),
                                        .c_dtype = dx.dtype()});
    }
    if (g[1].wanted()) {
      auto [dw, accumulate] = g[1].slot(run, w.shape(), w.dtype());
      run.kernels().gemm(run.stream(), {.a = dy.raw(),
                                        .b = x.raw(),
                                        .c = dw.raw(),
                                        .transpose_a = true,
                                        .m = out,
                                        .n = in,
                                        .k = tokens,
                                        .lda = out,
                                        .ldb = in,
                                        .ldc = in,
                                        .beta = accumulate ? 1.0f : 0.0f,
                                        .dtype = dy.dtype(),
                                        .c_dtype = dw.dtype()});
    }
    if (g[2].wanted()) bias_gradient(run, dy, g[2]);
  }

  static void bias_gradient(Run& run, const Tensor& dy, InputGrad& g) {
    auto [db, accumulate] = g.slot(run, {dy.size(1)}, DType::f32);
    MT_CHECK(db.dtype() == DType::f32, "a bias must be a parameter");
    run.kernels().column_sum(run.stream(), {.x = dy.raw(),
                                            .out = db.data<float>(),
                                            .rows = dy.size(0),
                                            .cols = dy.size(1),
                                            .accumulate = accumulate,
                                            .dtype = dy.dtype()});
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.size(1) == w.size(1), "x ", x.shape(), ", w ", w.shape());
  MT_CHECK(x.contiguous() && w.contiguous() && x.dtype() == w.dtype(), name(x.dtype()), " vs ", name(w.dtype()));
  MT_CHECK(!b.defined() || (b.numel() == w.size(0) && b.contiguous()), "bias of ", w.size(0), " outputs");
  require_kernel(x.run(), x.run().kernels().gemm, "gemm");
  return apply(Linear{}, x, w, b);
}

}  // namespace mtrain
