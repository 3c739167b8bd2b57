// Functions of one number: building blocks for ops without a fused kernel on a backend
// (mtrain/autograd/ops/compositions.h). Stateless; thread-safe.
#pragma once
#include "mtrain/kernel/math.h"
#include "mtrain/kernel/relu.h"

namespace mtrain {

enum class UnaryKind : uint8_t {
  sigmoid,     // 1 / (1 + e^-x)
  rsqrt,       // 1 / sqrt(x)
  normal_cdf,  // Φ(x)
  normal_pdf,  // exp(-x²/2) / sqrt(2π)
  tanh,
  tanh_slope,  // 1 - tanh(x)²
  relu,        // max(x, 0)
  step,        // 1 where x > 0, else 0
};

template <UnaryKind kKind>
MT_HD float unary(float x) {
  if constexpr (kKind == UnaryKind::sigmoid)
    return sigmoid(x);
  else if constexpr (kKind == UnaryKind::rsqrt)
    return 1.0f / std::sqrt(x);
  else if constexpr (kKind == UnaryKind::normal_cdf)
    return normal(x).cdf;
  else if constexpr (kKind == UnaryKind::normal_pdf)
    return normal(x).pdf;
  else if constexpr (kKind == UnaryKind::tanh)
    return tanh_fast(x);
  else if constexpr (kKind == UnaryKind::tanh_slope)
    return 1.0f - tanh_fast(x) * tanh_fast(x);
  else if constexpr (kKind == UnaryKind::relu)
    return relu(x);
  else
    return relu_grad(x);
}

}  // namespace mtrain
