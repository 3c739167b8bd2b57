// SwiGLU's gate: y = silu(gate) * up, silu(x) = x * sigmoid(x) (Shazeer 2020, arXiv:2002.05202).
// Stateless; thread-safe.
#pragma once
#include "mtrain/kernel/math.h"

namespace mtrain {

MT_HD float silu_mul(float gate, float up) { return gate * sigmoid(gate) * up; }

struct SiluMulGrad {
  float gate, up;
};
/// d silu(x)/dx = s + x s (1 - s), s = sigmoid(x).
MT_HD SiluMulGrad silu_mul_backward(float dy, float gate, float up) {
  float s = sigmoid(gate);
  float silu = gate * s;
  return {dy * up * (s + silu * (1.0f - s)), dy * silu};
}

}  // namespace mtrain
