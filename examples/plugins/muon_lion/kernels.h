// The optimizer's own kernels, one table for each backend that has them. All pointers are device
// pointers to float. `queue` is Stream::native(): a cudaStream_t on CUDA, null on the CPU, which
// computes at once. Plain functions, because nvcc compiles one of the files.
#pragma once
#include <cstdint>

namespace muon_lion {

/// m = decay * m + g;  out = nesterov ? g + decay * m : m, with g = grad_scale * grad and m in
/// `momentum`.
struct MomentumArgs {
  const float* grad;
  float* momentum;
  float* out;
  int64_t count;
  float decay, grad_scale;
  bool nesterov;
};
/// x = x / (|x| + eps), |x| the root of the sum of squares, which is added up in a fixed order:
/// kPartials sums of interleaved ranges first, and then those. `partials` is scratch memory.
struct NormalizeArgs {
  float* x;
  float* partials;
  int64_t count;
  float eps;
};
inline constexpr int kPartials = 256;
/// p = keep * p - step * x.
struct StepArgs {
  float* param;
  const float* x;
  int64_t count;
  float keep, step;
};
/// c = beta1 m + (1 - beta1) g;  p = keep * p - lr * sign(c);  m = beta2 m + (1 - beta2) g, with
/// g = grad_scale * grad (Lion).
struct LionArgs {
  float* param;
  const float* grad;
  float* momentum;
  int64_t count;
  float beta1, beta2, grad_scale, keep, lr;
};

/// Returns null if the work was queued; otherwise the error text of the device's library.
struct Kernels {
  const char* (*momentum)(void* queue, const MomentumArgs& args);
  const char* (*normalize)(void* queue, const NormalizeArgs& args);
  const char* (*step)(void* queue, const StepArgs& args);
  const char* (*lion)(void* queue, const LionArgs& args);
};
extern const Kernels kCpuKernels;
/// Null if the plugin was built without nvcc.
extern const Kernels* const kCudaKernels;

}  // namespace muon_lion
