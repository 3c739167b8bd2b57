// The arguments of the kernels of activations: gated and plain, forward and backward. Conventions
// as in kernel_table.h, which includes this file.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"

namespace mtrain {

/// y = silu(gate) * up, silu(x) = x / (1 + exp(-x)) (Shazeer 2020, arXiv:2002.05202).
struct SiluMulArgs {
  const void* gate;
  const void* up;
  void* y;
  int64_t count;
  DType dtype;
};
struct SiluMulBackwardArgs {
  const void* dy;
  const void* gate;
  const void* up;
  void* d_gate;
  void* d_up;
  int64_t count;
  DType dtype;
};

enum class GeluKind : uint8_t { erf, tanh };
/// y = x Φ(x), exact by erf or by the tanh approximation of GPT-2 (Hendrycks & Gimpel 2016,
/// arXiv:1606.08415).
struct GeluArgs {
  const void* x;
  void* y;
  int64_t count;
  GeluKind kind;
  DType dtype;
};
struct GeluBackwardArgs {
  const void* dy;
  const void* x;
  void* dx;
  int64_t count;
  GeluKind kind;
  bool accumulate;
  DType dtype;
};

/// y = gelu(gate) * up (Shazeer 2020, arXiv:2002.05202).
struct GeluMulArgs {
  const void* gate;
  const void* up;
  void* y;
  int64_t count;
  GeluKind kind;
  DType dtype;
};
struct GeluMulBackwardArgs {
  const void* dy;
  const void* gate;
  const void* up;
  void* d_gate;
  void* d_up;
  int64_t count;
  GeluKind kind;
  DType dtype;
};

enum class ReluKind : uint8_t { plain, squared };
/// y = max(x, 0), or its square (So et al. 2021, arXiv:2109.08668).
struct ReluArgs {
  const void* x;
  void* y;
  int64_t count;
  ReluKind kind;
  DType dtype;
};
/// dx = dy where x > 0, or dy * 2 max(x, 0).
struct ReluBackwardArgs {
  const void* dy;
  const void* x;
  void* dx;
  int64_t count;
  ReluKind kind;
  bool accumulate;
  DType dtype;
};

}  // namespace mtrain
