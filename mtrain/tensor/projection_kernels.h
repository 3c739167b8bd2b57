// Arguments of the kernels between the projections of attention and its products: norms of queries
// and keys, clamping, the gate of the output. Part of kernel_table.h, whose conventions hold.
// Values; pointers are not owned.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"

namespace mtrain {

/// A view of heads: head j of group g at token t starts at data + t*row_stride + g*group_stride +
/// j*head_dim. Strides are in elements.
struct HeadsView {
  void* data = nullptr;
  int64_t row_stride = 0, group_stride = 0;
};

/// Normalizes heads in place. A row is one head, or with `whole` all heads of a token: RMSNorm, y =
/// w * x * rstd, or LayerNorm, y = w * (x - mean) * rstd + b, as in RmsNormArgs and LayerNormArgs
/// (queries and keys: Dehghani et al. 2023, arXiv:2302.05442). Heads in order are those of token 0,
/// group by group, then those of token 1, …
struct HeadNormArgs {
  HeadsView x;
  void* kept;     // [tokens * groups * heads * head_dim], receives x for backward; may be null
  const void* w;  // [head_dim], or [groups * heads * head_dim] with own_weights
  const void* b;  // as w; may be null
  float* mean;    // [rows]; null: RMSNorm
  float* rstd;    // [rows]
  int64_t tokens, groups, heads, head_dim;  // `heads` of each group
  bool own_weights;                         // each head has weights of its own
  bool whole;                               // REQUIRES: own_weights, RMSNorm
  float eps;
  DType dtype;
  const float* sums = nullptr;  // [tokens], with `whole`: the sum of squares of each whole row;
                                // null: these heads are the whole row
  int64_t width = 0;            // with `sums`: number of elements of the whole row
  float offset = 0;             // w + offset in place of w. REQUIRES with `whole`: 0
};
struct HeadNormBackwardArgs {
  HeadsView dx;      // dy on input, in place
  const void* kept;  // x
  const void* w;
  const float* mean;  // null: RMSNorm
  const float* rstd;
  float* dw;  // as w; may be null
  float* db;  // as w; may be null
  int64_t tokens, groups, heads, head_dim;
  bool own_weights, whole, accumulate_dw, accumulate_db;
  DType dtype;
  const float* sums = nullptr;  // [tokens], `whole`: the sums of dy*w*x over all elements of a row
  int64_t width = 0;
  float offset = 0;
};
/// out[t] = the sum over all heads of a token of x², or of x*w*kept.
struct HeadSumsArgs {
  HeadsView x;
  const void* kept;  // in order as in HeadNormArgs; null: x²
  const void* w;     // [groups * heads * head_dim]; only with `kept`
  float* out;        // [tokens]
  int64_t tokens, groups, heads, head_dim;
  DType dtype;
};

/// x = min(max(x, -limit), limit) in place. Bit i % 8 of kept[i / 8] is 1 where |x[i]| <= limit.
/// NaN stays.
struct ClampArgs {
  void* x;
  uint8_t* kept;  // [ceil(count / 8)], may be null
  int64_t count;
  float limit;
  DType dtype;
};
/// dx = 0 where the bit in `kept` is 0; in place.
struct ClampBackwardArgs {
  void* dx;
  const uint8_t* kept;
  int64_t count;
  DType dtype;
};

/// y = sigmoid(gate) * x (Dauphin et al. 2017, arXiv:1612.08083).
struct SigmoidMulArgs {
  const void* gate;
  const void* x;
  void* y;
  int64_t count;
  DType dtype;
};
struct SigmoidMulBackwardArgs {
  const void* dy;
  const void* gate;
  const void* x;
  void* d_gate;
  void* dx;
  int64_t count;
  DType dtype;
};

}  // namespace mtrain
