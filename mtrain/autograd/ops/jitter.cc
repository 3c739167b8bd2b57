// y = x · f with f uniform in [1 - eps, 1 + eps], and y = x + n with n uniform in [-size, size].
// Nothing is saved: backward draws the same factors again.
#include "mtrain/autograd/expert_ops.h"
#include "mtrain/autograd/noise_ops.h"
#include "mtrain/autograd/ops/compositions.h"
#include "mtrain/autograd/ops/uniform_draws.h"

namespace mtrain {
namespace {

/// `floats` in the type of x.
Tensor rounded_like(ExecutionContext& ctx, const Tensor& floats, const Tensor& x) {
  if (x.dtype() == DType::f32) return floats;
  Tensor rounded = ctx.empty(x.shape(), x.dtype());
  ctx.copy(rounded, floats);
  return rounded;
}

MaybePlacement placed_like_stream(const char* op, const Tensor& x) {
  return ResultPlacement(op, x)
      .with(PlacementRule::pointwise)
      .unsharded(1, "random numbers are those of whole rows of the residual stream");
}

struct Jitter {
  float eps = 0;
  uint64_t name_key = 0;
  UniformDraws draws;

  MaybePlacement placed(const Tensor& x) const { return placed_like_stream("jitter", x); }

  Tensor product(ExecutionContext& ctx, const Tensor& x) const {
    Tensor y = draws.make(ctx, x.shape(), 1, eps), floats = x;
    if (x.dtype() != DType::f32) {
      floats = ctx.empty(x.shape(), DType::f32);
      ctx.copy(floats, x);
    }
    ctx.kernels().mul(
        ctx.stream(),
        {.a = floats.raw(), .b = y.raw(), .y = y.raw(), .count = x.numel(), .dtype = DType::f32});
    return rounded_like(ctx, y, x);
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    draws = UniformDraws(ctx, x.size(0), name_key);
    return product(ctx, x);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, product(ctx, dy));
  }
};

struct AddNoise {  // dx = dy
  float size = 0;
  uint64_t name_key = 0;

  MaybePlacement placed(const Tensor& x) const { return placed_like_stream("add_noise", x); }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = UniformDraws(ctx, x.size(0), name_key).make(ctx, x.shape(), 0, size);
    add_scaled(ctx, x, y, 1);
    return rounded_like(ctx, y, x);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) { g[0].give(ctx, dy); }
};

}  // namespace

Tensor jitter(const Tensor& x, float eps, uint64_t name_key) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && eps >= 0 && eps < 1, x.shape(), ", ", eps);
  if (!x.context().training || eps == 0) return x;
  const KernelTable& kernels = x.context().kernels();
  require_kernel(x.context(), kernels.mul, "mul");
  require_kernel(x.context(), kernels.cast, "cast");
  return apply(Jitter{.eps = eps, .name_key = name_key, .draws = {}}, x);
}

Tensor add_noise(const Tensor& x, float size, uint64_t name_key) {
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && size >= 0, x.shape(), ", ", size);
  if (!x.context().training || size == 0) return x;
  require_kernel(x.context(), x.context().kernels().cast, "cast");
  return apply(AddNoise{.size = size, .name_key = name_key}, x);
}

}  // namespace mtrain
