// Uniform random numbers for the elements of the residual stream, as functions of seed, name, step
// and global token index, so that they do not depend on how tokens are divided. A value.
#pragma once
#include <vector>

#include "mtrain/autograd/ops/stream_tokens.h"

namespace mtrain {

/// For each element one of 2^kUniformBits equally spaced numbers between middle - spread and middle
/// + spread. Each is a fixed-point number whose bits are results of the dropout kernel with p =
/// 1/2, so a device needs no kernel for them; if the backend lacks the dropout kernel, the host
/// computes the numbers. About five passes over memory per bit.
class UniformDraws {
 public:
  /// For the rows of a tensor of the residual stream, of the current step.
  UniformDraws(const ExecutionContext& ctx, int64_t rows, uint64_t name_key)
      : name_key_(name_key), step_(ctx.step), tokens_(stream_tokens(ctx, rows)) {}
  UniformDraws() = default;
  /// float [rows, columns] = middle + spread · (2 u - 1), u = Σ_i bit_i 2^-i + half a step, for i =
  /// 1 … kUniformBits. Every call gives the same numbers, even if the step of the context has
  /// changed since construction.
  Tensor make(ExecutionContext& ctx, const Shape& shape, float middle, float spread) const;

 private:
  void draw(ExecutionContext& ctx, const Tensor& ones, const Tensor& y, int bit) const;
  void draw_on_host(ExecutionContext& ctx, const Tensor& y, uint64_t key) const;

  uint64_t name_key_ = 0, step_ = 0;
  std::vector<RowRange> tokens_;  // of the rows, in order
};

/// to += factor · from, in float.
void add_scaled(ExecutionContext& ctx, const Tensor& from, const Tensor& to, float factor);

}  // namespace mtrain
