// AdamW for one element (Loshchilov & Hutter 2019, arXiv:1711.05101). Stateless; thread-safe.
#pragma once
#include <cmath>

#include "mtrain/base/export.h"

namespace mtrain {

struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay, correction1, correction2, grad_scale;
};

/// g = grad*grad_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²; p -= lr (m/c1 / (sqrt(v/c2) +
/// eps) + decay p). correction1 c1 = 1 - b1^t and correction2 c2 = 1 - b2^t at step t = 1, 2, …
MT_HD void adamw_update(const AdamWStep& s, float grad, float& param, float& exp_avg,
                        float& exp_avg_sq) {
  float g = grad * s.grad_scale;
  float m = s.beta1 * exp_avg + (1.0f - s.beta1) * g;
  float v = s.beta2 * exp_avg_sq + (1.0f - s.beta2) * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  param -= s.lr *
           ((m / s.correction1) / (std::sqrt(v / s.correction2) + s.eps) + s.weight_decay * param);
}

}  // namespace mtrain
