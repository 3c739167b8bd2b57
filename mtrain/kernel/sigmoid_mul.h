// A sigmoid gate: y = sigmoid(gate) * x (Dauphin et al. 2017, arXiv:1612.08083). Stateless;
// thread-safe.
#pragma once
#include "mtrain/kernel/math.h"

namespace mtrain {

MT_HD float sigmoid_mul(float gate, float x) { return sigmoid(gate) * x; }

struct SigmoidMulGrad {
  float gate, x;
};
/// d sigmoid(g)/dg = s (1 - s), s = sigmoid(g).
MT_HD SigmoidMulGrad sigmoid_mul_backward(float dy, float gate, float x) {
  float s = sigmoid(gate), scaled = dy * s;
  return {scaled * x * (1.0f - s), scaled};
}

}  // namespace mtrain
