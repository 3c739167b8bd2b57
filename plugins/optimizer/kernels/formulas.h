// The updates of one element, written once for CPU and CUDA. Products are not fused with sums, so
// that an update has the same bits at every instruction-set level and on a GPU. Stateless.
#pragma once
#include "kernels.h"
#include "mtrain/base/export.h"

namespace mtrain::optimizer_kernels {

/// Updates element i; returns the new parameter.
MT_HD float apply(const SgdArgs& a, int64_t i) {
  const float p = a.param[i];
  float step = a.grad_scale * a.grad[i] + a.coupled_decay * p;
  if (a.momentum) {
    const float m = a.decay * a.momentum[i] + step;
    a.momentum[i] = m;
    step = a.nesterov ? step + a.decay * m : m;
  }
  return a.param[i] = a.keep * p - a.lr * step;
}

MT_HD float apply(const LionArgs& a, int64_t i) {
  const float g = a.grad_scale * a.grad[i], m = a.momentum[i];
  const float mean = a.beta1 * m + a.rest1 * g;
  const float sign = static_cast<float>((mean > 0) - (mean < 0));
  a.momentum[i] = a.beta2 * m + a.rest2 * g;
  return a.param[i] = a.keep * a.param[i] - a.lr * sign;
}

/// The running mean m of the gradient, and the step in its direction. `at` is the element's place
/// in the parameter.
MT_HD float direction(const DirectionArgs& a, int64_t at) {
  const float g = a.grad_scale * a.grad[at];
  float m = a.momentum[at];
  m += a.share * (g - m);
  a.momentum[at] = m;
  return a.nesterov ? m + a.share * (g - m) : m;
}

MT_HD float stepped(const StepArgs& a, int64_t at, float x) {
  return a.param[at] = a.keep * a.param[at] - a.step * x;
}

}  // namespace mtrain::optimizer_kernels
