#include "mtrain/autograd/ops/uniform_draws.h"

#include "mtrain/autograd/noise_ops.h"
#include "mtrain/kernel/dropout.h"

namespace mtrain {

void add_scaled(ExecutionContext& ctx, const Tensor& from, const Tensor& to, float factor) {
  ctx.kernels().cast(ctx.stream(), {.src = from.raw(),
                                    .dst = to.raw(),
                                    .count = from.numel(),
                                    .scale = factor,
                                    .accumulate = true,
                                    .src_dtype = from.dtype(),
                                    .dst_dtype = DType::f32});
}

/// 0 or 2 for each element: twice the bit of this number.
void UniformDraws::draw(ExecutionContext& ctx, const Tensor& ones, const Tensor& y, int bit) const {
  const uint64_t key = name_key_ + static_cast<uint64_t>(bit);
  if (!ctx.kernels().dropout) return draw_on_host(ctx, y, key);
  int64_t row = 0;
  for (const RowRange& some : tokens_) {
    ctx.kernels().dropout(ctx.stream(), {.x = ones.slice(0, row, row + some.rows).raw(),
                                         .y = y.slice(0, row, row + some.rows).raw(),
                                         .count = some.rows * ones.size(1),
                                         .first_index = some.first * ones.size(1),
                                         .seed = ctx.seed(),
                                         .name_key = key,
                                         .step = step_,
                                         .p = 0.5f,
                                         .dtype = DType::f32});
    row += some.rows;
  }
}

void UniformDraws::draw_on_host(ExecutionContext& ctx, const Tensor& y, uint64_t key) const {
  const RngStream rng(ctx.seed(), key, step_);
  std::vector<float> drawn;
  drawn.reserve(static_cast<size_t>(y.numel()));
  for (const RowRange& some : tokens_)
    for (int64_t i = 0; i < some.rows * y.size(1); ++i)
      drawn.push_back(dropout_factor(rng, some.first * y.size(1) + i, 0.5f, 2));
  ctx.upload(y, drawn.data());
}

Tensor UniformDraws::make(ExecutionContext& ctx, const Shape& shape, float middle,
                          float spread) const {
  Tensor sum = ctx.empty(shape, DType::f32), ones = ctx.empty(shape, DType::f32),
         drawn = ctx.empty(shape, DType::f32);
  float unit = spread;
  ctx.fill(ones, 1);
  ctx.fill(sum, middle - spread + spread / static_cast<float>(1 << kUniformBits));
  for (int bit = 1; bit <= kUniformBits; ++bit) {
    unit /= 2;
    draw(ctx, ones, drawn, bit);
    add_scaled(ctx, drawn, sum, unit);
  }
  return sum;
}

}  // namespace mtrain
