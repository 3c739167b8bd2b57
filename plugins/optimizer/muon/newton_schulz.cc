#include "newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mtrain::muon {
namespace {

// The coefficients of Jordan et al.: singular values end between 0.7 and 1.2, after few steps.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

/// C = alpha op(A) op(B) + addend; an undefined addend is zero.
struct Product {
  const Tensor &a, &b, &c;
  Tensor addend = {};
  bool transpose_a = false, transpose_b = false;
  double alpha = 1;
};

void multiply(ExecutionContext& ctx, const Product& p) {
  ctx.kernels().gemm(ctx.stream(), {.a = p.a.raw(),
                                    .b = p.b.raw(),
                                    .c = p.c.raw(),
                                    .addend = p.addend.defined() ? p.addend.raw() : nullptr,
                                    .transpose_a = p.transpose_a,
                                    .transpose_b = p.transpose_b,
                                    .m = p.c.shape()[0],
                                    .n = p.c.shape()[1],
                                    .k = p.a.shape()[p.transpose_a ? 0 : 1],
                                    .lda = p.a.shape()[1],
                                    .ldb = p.b.shape()[1],
                                    .ldc = p.c.shape()[1],
                                    .alpha = static_cast<float>(p.alpha),
                                    .dtype = p.a.dtype(),
                                    .c_dtype = p.c.dtype()});
}

}  // namespace

Buffers::Buffers(int64_t rows, int64_t cols)
    : square{std::min(rows, cols), std::min(rows, cols)}, like_x{rows, cols} {}

// An iteration is X' = a X + (b S + c S²) X with S = X Xᵀ. Where there are more rows than columns,
// S = Xᵀ X is smaller, and the factor stands on the right. With Y = X / aᵏ after k iterations, the
// sums need no factor of their own, so that products add them: S = a²ᵏ Y Yᵀ, Q = S + (c / b) S²,
// Y' = Y + (b / a) Q Y.
Orthogonal orthogonal(ExecutionContext& ctx, Tensor x, int64_t steps) {
  const bool tall = x.shape()[0] > x.shape()[1];
  const Buffers shapes(x.shape()[0], x.shape()[1]);
  Tensor s = ctx.empty(shapes.square, x.dtype()), q = ctx.empty(shapes.square, x.dtype()),
         next = ctx.empty(shapes.like_x, x.dtype());
  double factor = 1;
  for (int64_t i = 0; i < steps; ++i) {
    multiply(ctx, {.a = x,
                   .b = x,
                   .c = s,
                   .transpose_a = tall,
                   .transpose_b = !tall,
                   .alpha = factor * factor});
    multiply(ctx, {.a = s, .b = s, .c = q, .addend = s, .alpha = kC / kB});
    multiply(ctx, {.a = tall ? x : q, .b = tall ? q : x, .c = next, .addend = x, .alpha = kB / kA});
    std::swap(x, next);
    factor *= kA;
  }
  return {x, factor};
}

}  // namespace mtrain::muon
