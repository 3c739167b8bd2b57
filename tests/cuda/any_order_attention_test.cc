// The gradient of attention that is summed in any order (run.fast_attention_gradient), against the
// deterministic one on the same GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "contract/harness.h"
#include "cuda_backend.h"

using namespace mtrain;
using contract::random_values;
using contract::Values;

namespace {

struct AnyOrderCase {
  const char* name;
  std::vector<int32_t> bounds;
  int64_t heads, groups, width;
  bool causal = true;
  int64_t window = 0;
  DType dtype = DType::bf16;
};

/// dq, dk and dv in one fused tensor, as they are stored for training.
Values fused_gradients(bool any_order, const AnyOrderCase& c) {
  cuda::CudaBackend backend({.any_order_attention = any_order});
  ExecutionContext ctx(backend);
  const int64_t tokens = c.bounds.back(), each = c.heads / c.groups, group = (each + 2) * c.width,
                row = c.groups * group;
  Tensor x = contract::make(ctx, random_values(tokens * row, "qkv"), {tokens, row}, c.dtype),
         dx = ctx.zeros({tokens, row}, c.dtype),
         o = ctx.empty({tokens, c.heads * c.width}, c.dtype),
         dy = contract::make(ctx, random_values(tokens * c.heads * c.width, "d_o"),
                             {tokens, c.heads * c.width}, c.dtype),
         lse = ctx.empty({tokens * c.heads}, DType::f32);
  auto view = [&](const Tensor& t, int64_t column) {
    return HeadsView{static_cast<char*>(t.raw()) + 2 * column, row, group};
  };
  AttentionArgs a{};
  a.q = view(x, 0), a.k = view(x, each * c.width), a.v = view(x, (each + 1) * c.width);
  a.o = o.raw(), a.lse = lse.data<float>(), a.cu_seqlens = c.bounds.data();
  a.sequences = std::ssize(c.bounds) - 1, a.tokens = tokens, a.dtype = c.dtype;
  a.heads = c.heads, a.groups = c.groups, a.head_dim = c.width;
  a.scale = 1 / std::sqrt(static_cast<float>(c.width)), a.causal = c.causal, a.window = c.window;
  ctx.kernels().attention(ctx.stream(), a);
  AttentionBackwardArgs b{};
  b.forward = a, b.d_o = dy.raw();
  b.dq = view(dx, 0), b.dk = view(dx, each * c.width), b.dv = view(dx, (each + 1) * c.width);
  for (int repeat = 0; repeat < 2; ++repeat)  // the second one finds used memory
    ctx.kernels().attention_backward(ctx.stream(), b);
  return contract::values_of(dx);
}

}  // namespace

TEST_CASE("attention's gradient summed in any order is the deterministic one up to rounding") {
  const AnyOrderCase cases[] = {
      {.name = "groups", .bounds = {0, 2048}, .heads = 8, .groups = 2, .width = 128},
      {.name = "one head per group",
       .bounds = {0, 512, 1024},
       .heads = 4,
       .groups = 4,
       .width = 64},
      {.name = "odd length", .bounds = {0, 1001}, .heads = 4, .groups = 2, .width = 64},
      {.name = "packed",
       .bounds = {0, 100, 1300, 1301, 2048},
       .heads = 8,
       .groups = 2,
       .width = 128},
      {.name = "window", .bounds = {0, 2048}, .heads = 8, .groups = 2, .width = 128, .window = 100},
      {.name = "packed, window",
       .bounds = {0, 700, 2048},
       .heads = 4,
       .groups = 2,
       .width = 64,
       .window = 100},
      {.name = "not causal",
       .bounds = {0, 768},
       .heads = 4,
       .groups = 4,
       .width = 64,
       .causal = false},
      {.name = "fp16",
       .bounds = {0, 1024},
       .heads = 4,
       .groups = 1,
       .width = 128,
       .dtype = DType::f16},
  };
  for (const AnyOrderCase& c : cases) {
    CAPTURE(c.name);
    const Values fixed = fused_gradients(false, c), any = fused_gradients(true, c);
    REQUIRE(fixed.size() == any.size());
    double difference = 0, square = 0, largest = 0, worst = 0;
    for (size_t i = 0; i < fixed.size(); ++i) {
      difference += (any[i] - fixed[i]) * (any[i] - fixed[i]), square += fixed[i] * fixed[i];
      largest = std::max(largest, std::fabs(fixed[i]));
      worst = std::max(worst, std::fabs(any[i] - fixed[i]));
    }
    const double unit = contract::roundoff(c.dtype);
    CHECK(std::isfinite(square));
    CHECK(square > 0);
    CHECK(std::sqrt(difference / square) < unit);
    CHECK(worst < 4 * unit * largest);
  }
}
