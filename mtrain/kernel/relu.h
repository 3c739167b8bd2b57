// ReLU and its square: y = max(x, 0), y = max(x, 0)² (So et al. 2021, arXiv:2109.08668). NaN stays
// NaN. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"

namespace mtrain {

MT_HD float relu(float x) { return x < 0.0f ? 0.0f : x; }
/// dy/dx; 0 at 0.
MT_HD float relu_grad(float x) { return x > 0.0f ? 1.0f : 0.0f; }

MT_HD float squared_relu(float x) { return relu(x) * relu(x); }
MT_HD float squared_relu_grad(float x) { return 2.0f * relu(x); }

}  // namespace mtrain
