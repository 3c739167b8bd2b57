// Arguments of the kernels of matrix products. Part of kernel_table.h, whose conventions hold.
// Values; pointers are not owned.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"

namespace mtrain {

/// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C + bias + addend, batched. op(X) is X as
/// stored or its transpose; ld* are the row strides as stored and stride_* the distances between
/// matrices of the batch, in elements. A and B share `dtype`; sums are in float.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [N] in `bias_dtype`, added to every row; may be null
  const void* addend =
      nullptr;  // strides as C; may be null. REQUIRES: batch 1, beta 0, no overlap with C
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  float alpha = 1, beta = 0;
  DType dtype = DType::f32, c_dtype = DType::f32, bias_dtype = DType::f32;
  // Factors of A and B: one float each on the device, multiplied into alpha. Null: 1.
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
};

/// C[M,N] (+)= op(A)[M,K] * op(B)[K,N] + bias in double: operands are converted without rounding,
/// and the sum is rounded to float and from there to `c_dtype`, or not at all if that is f64. op(X)
/// is X as stored or its transpose. Types are floating ones, f64 included; matrices are contiguous.
struct DoubleGemmArgs {
  const void* a;
  const void* b;
  void* c;
  const void* bias = nullptr;  // [N]; may be null
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t m = 0, n = 0, k = 0;
  DType a_dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f64, bias_dtype = DType::f32;
};

}  // namespace mtrain
