// GELU: y = x Φ(x) (Hendrycks & Gimpel 2016, arXiv:1606.08415), exact or by the tanh approximation.
// The approximation uses sigmoid, since (1 + tanh(u)) / 2 = sigmoid(2u). Stateless; thread-safe.
#pragma once
#include "mtrain/kernel/math.h"

namespace mtrain {

namespace detail {
constexpr float kGeluTwoC = 1.5957691216057308f;  // 2 sqrt(2/π)
constexpr float kGeluCubic = 0.044715f;
}  // namespace detail

MT_HD float gelu_erf(float x) { return x * normal(x).cdf; }
/// dy/dx = Φ(x) + x φ(x).
MT_HD float gelu_erf_grad(float x) {
  Normal n = normal(x);
  return n.cdf + x * n.pdf;
}

MT_HD float gelu_tanh(float x) {
  return x * sigmoid(detail::kGeluTwoC * (x + detail::kGeluCubic * x * x * x));
}
/// dy/dx = s + x s (1 - s) d(2u)/dx, s = sigmoid(2u).
MT_HD float gelu_tanh_grad(float x) {
  float s = sigmoid(detail::kGeluTwoC * (x + detail::kGeluCubic * x * x * x));
  return s + x * s * (1.0f - s) * detail::kGeluTwoC * (1.0f + 3.0f * detail::kGeluCubic * x * x);
}

}  // namespace mtrain
