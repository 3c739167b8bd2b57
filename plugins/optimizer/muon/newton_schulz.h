// Newton-Schulz iterations towards an orthogonal matrix, with the backend's matrix products.
// Stateless.
#pragma once
#include <vector>

#include "mtrain/tensor/execution_context.h"

namespace mtrain::muon {

/// The shapes of two buffers of a square matrix of the smaller side of x, and of another one like
/// x.
struct Buffers {
  explicit Buffers(int64_t rows, int64_t cols);
  Shape square, like_x;
};

/// For x [rows, cols] with a norm of at most 1, about U Vᵀ of its singular value decomposition U S
/// Vᵀ, times a factor, by which the result must be multiplied: `factor`. Uses the memory of x.
struct Orthogonal {
  Tensor x;
  double factor = 1;
};
Orthogonal orthogonal(ExecutionContext& ctx, Tensor x, int64_t steps);

}  // namespace mtrain::muon
