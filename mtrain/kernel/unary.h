// Functions of one number: building blocks for ops without a fused kernel on a backend
// (mtrain/autograd/ops/compositions.h). Stateless; thread-safe.
#pragma once
#include "mtrain/kernel/math.h"

namespace mtrain {

enum class UnaryKind : uint8_t {
  sigmoid,     // 1 / (1 + e^-x)
  rsqrt,       // 1 / sqrt(x)
  normal_cdf,  // Φ(x)
  normal_pdf,  // exp(-x²/2) / sqrt(2π)
};

template <UnaryKind kKind>
MT_HD float unary(float x) {
  if constexpr (kKind == UnaryKind::sigmoid)
    return sigmoid(x);
  else if constexpr (kKind == UnaryKind::rsqrt)
    return 1.0f / std::sqrt(x);
  else if constexpr (kKind == UnaryKind::normal_cdf)
    return normal(x).cdf;
  else
    return normal(x).pdf;
}

}  // namespace mtrain
