// The update of one element: the same source for all backends.
#pragma once
#include "kernels.h"

#ifdef __CUDACC__
#define MUON_HD __host__ __device__ inline
#else
#define MUON_HD inline
#endif

namespace muon_lion {

MUON_HD void apply(const MomentumArgs& a, int64_t i) {
  const float g = a.grad_scale * a.grad[i], m = a.decay * a.momentum[i] + g;
  a.momentum[i] = m;
  a.out[i] = a.nesterov ? g + a.decay * m : m;
}
MUON_HD void apply(const StepArgs& a, int64_t i) {
  a.param[i] = a.keep * a.param[i] - a.step * a.x[i];
}
MUON_HD void apply(const LionArgs& a, int64_t i) {
  const float g = a.grad_scale * a.grad[i], m = a.momentum[i];
  const float c = a.beta1 * m + (1 - a.beta1) * g;
  const float sign = static_cast<float>((c > 0) - (c < 0));
  a.param[i] = a.keep * a.param[i] - a.lr * sign;
  a.momentum[i] = a.beta2 * m + (1 - a.beta2) * g;
}

}  // namespace muon_lion
