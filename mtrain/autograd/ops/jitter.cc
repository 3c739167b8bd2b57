// y = x · f with f uniform in [1 - eps, 1 + eps]. A factor is a fixed-point number whose bits are
// draws of dropout with probability 1/2, so that a device makes it from kernels that it has.
// Nothing is saved: backward draws the same factors again.
#include "mtrain/autograd/expert_ops.h"
#include "mtrain/autograd/ops/compositions.h"
#include "mtrain/autograd/ops/stream_tokens.h"
#include "mtrain/kernel/dropout.h"

namespace mtrain {
namespace {

struct Jitter {
  float eps = 0;
  uint64_t name_key = 0, step = 0;
  std::vector<RowRange> tokens;  // of the rows of x, in order

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("jitter", x)
        .with(PlacementRule::pointwise)
        .unsharded(1, "factors are those of whole rows of the residual stream");
  }

  /// 0 or 2 for each element: twice the bit of this number.
  void draw(ExecutionContext& ctx, const Tensor& ones, const Tensor& y, int bit) const {
    const uint64_t key = name_key + static_cast<uint64_t>(bit);
    if (!ctx.kernels().dropout) return draw_on_host(ctx, y, key);
    int64_t row = 0;
    for (const RowRange& some : tokens) {
      ctx.kernels().dropout(ctx.stream(), {.x = ones.slice(0, row, row + some.rows).raw(),
                                           .y = y.slice(0, row, row + some.rows).raw(),
                                           .count = some.rows * ones.size(1),
                                           .first_index = some.first * ones.size(1),
                                           .seed = ctx.seed(),
                                           .name_key = key,
                                           .step = step,
                                           .p = 0.5f,
                                           .dtype = DType::f32});
      row += some.rows;
    }
  }

  void draw_on_host(ExecutionContext& ctx, const Tensor& y, uint64_t key) const {
    const RngStream rng(ctx.seed(), key, step);
    std::vector<float> drawn;
    drawn.reserve(static_cast<size_t>(y.numel()));
    for (const RowRange& some : tokens)
      for (int64_t i = 0; i < some.rows * y.size(1); ++i)
        drawn.push_back(dropout_factor(rng, some.first * y.size(1) + i, 0.5f, 2));
    ctx.upload(y, drawn.data());
  }

  static void add(ExecutionContext& ctx, const Tensor& from, const Tensor& to, float factor) {
    ctx.kernels().cast(ctx.stream(), {.src = from.raw(),
                                      .dst = to.raw(),
                                      .count = from.numel(),
                                      .scale = factor,
                                      .accumulate = true,
                                      .src_dtype = DType::f32,
                                      .dst_dtype = DType::f32});
  }

  /// 1 - eps + 2 eps (u + half a step), u = Σ_i bit_i 2^-i for i = 1 … kJitterBits.
  Tensor factors(ExecutionContext& ctx, const Shape& shape) const {
    Tensor sum = ctx.empty(shape, DType::f32), ones = ctx.empty(shape, DType::f32),
           drawn = ctx.empty(shape, DType::f32);
    float unit = eps;
    ctx.fill(ones, 1);
    ctx.fill(sum, 1 - eps + eps / static_cast<float>(1 << kJitterBits));
    for (int bit = 1; bit <= kJitterBits; ++bit) {
      unit /= 2;
      draw(ctx, ones, drawn, bit);
      add(ctx, drawn, sum, unit);
    }
    return sum;
  }

  Tensor product(ExecutionContext& ctx, const Tensor& x) const {
    Tensor y = factors(ctx, x.shape()), floats = x;
    if (x.dtype() != DType::f32) {
      floats = ctx.empty(x.shape(), DType::f32);
      ctx.copy(floats, x);
    }
    ctx.kernels().mul(
        ctx.stream(),
        {.a = floats.raw(), .b = y.raw(), .y = y.raw(), .count = x.numel(), .dtype = DType::f32});
    if (x.dtype() == DType::f32) return y;
    Tensor rounded = ctx.empty(x.shape(), x.dtype());
    ctx.copy(rounded, y);
    return rounded;
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    step = ctx.step;
    tokens = stream_tokens(ctx, x.size(0));
    return product(ctx, x);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, product(ctx, dy));
  }
};

}  // namespace

Tensor jitter(const Tensor& x, float eps, uint64_t name_key) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && eps >= 0 && eps < 1, x.shape(), ", ", eps);
  if (!x.context().training || eps == 0) return x;
  const KernelTable& kernels = x.context().kernels();
  require_kernel(x.context(), kernels.mul, "mul");
  require_kernel(x.context(), kernels.cast, "cast");
  return apply(Jitter{.eps = eps, .name_key = name_key}, x);
}

}  // namespace mtrain
