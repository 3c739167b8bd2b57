// Kernels of the optimizers sgd, lion and muon, one table for each backend that has them. Pointers
// are device pointers, to float unless a dtype says otherwise. Plain structs and functions: nvcc
// compiles one of the files.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"

namespace mtrain::optimizer_kernels {

/// g = grad_scale * grad + coupled_decay * p;  m = decay * m + g;  p = keep * p - lr * d, where d
/// is m, or g + decay * m with `nesterov`. Without `momentum` (null) d is g. Updates `value` (of
/// value_dtype, may be null) as well.
struct SgdArgs {
  float* param;
  const float* grad;
  float* momentum;
  void* value;
  int64_t count;
  float lr, coupled_decay, keep, decay, grad_scale;
  bool nesterov;
  DType value_dtype;
};

/// p = keep * p - lr * sign(beta1 * m + rest1 * g);  m = beta2 * m + rest2 * g, with g = grad_scale
/// * grad and rest = 1 - beta. Updates `value` as well.
struct LionArgs {
  float* param;
  const float* grad;
  float* momentum;
  void* value;
  int64_t count;
  float lr, beta1, rest1, beta2, rest2, keep, grad_scale;
  DType value_dtype;
};

/// The elements of a matrix in its parameter: `pieces` ranges of `piece` consecutive elements, the
/// first elements of which are `stride` apart.
struct Pieces {
  int64_t piece, stride, pieces;
};

/// m += share * (g - m);  x = m, or m + share * (g - m) with `nesterov`. `x` is contiguous, in
/// x_dtype (fp32 or bf16); grad and momentum start at the matrix's first element.
struct DirectionArgs {
  const float* grad;
  float* momentum;
  void* x;
  Pieces pieces;
  float share, grad_scale;
  bool nesterov;
  DType x_dtype;
};

/// x /= max(|x|, eps) with the root of the sum of squares |x|, which is added up in a fixed order:
/// kPartials sums first. `partials` is scratch memory for them.
struct NormalizeArgs {
  void* x;
  float* partials;
  int64_t count;
  float eps;
  DType x_dtype;
};
inline constexpr int kPartials = 512;

/// p = keep * p - step * x, with x as in DirectionArgs. Updates `value` as well.
struct StepArgs {
  float* param;
  const void* x;
  void* value;
  Pieces pieces;
  float keep, step;
  DType x_dtype, value_dtype;
};

/// `queue`: a cudaStream_t, or the Stream itself on the CPU, which computes at once. Returns null,
/// or the error text of the device's library.
template <class Args>
using Kernel = const char* (*)(void* queue, const Args& args);

struct Kernels {
  Kernel<SgdArgs> sgd;
  Kernel<LionArgs> lion;
  Kernel<DirectionArgs> direction;
  Kernel<NormalizeArgs> normalize;
  Kernel<StepArgs> step;
};
/// Null if mtrain was built without nvcc.
extern const Kernels* const kCudaKernels;

}  // namespace mtrain::optimizer_kernels
