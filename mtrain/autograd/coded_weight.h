// CodedWeight: a frozen, quantized matrix: codes and scales (kernel/weight_codes.h). A matrix
// product dequantizes it into a temporary matrix in the dtype of the product's input. A value; its
// tensors have shared ownership. For the rank's own thread.
#pragma once
#include "mtrain/autograd/tape.h"
#include "mtrain/kernel/weight_codes.h"

namespace mtrain {

struct MT_API CodedWeight {
  WeightFormat format = WeightFormat::nf4;
  int64_t rows = 0, cols = 0;
  Tensor codes;   // u8 [rows, code_bytes(format, cols)]
  Tensor scales;  // float [rows]; nf4: [rows, cols / kNf4Block]; undefined with double quantization
  Tensor scale_codes, groups, first_block;  // as in DecodeWeightArgs

  /// Returns the dequantized matrix [rows, cols] in `dtype`.
  Tensor decode(ExecutionContext& ctx, DType dtype) const;
};

/// linear() with a quantized weight, which gets no gradient. `codes`: weight.codes, with its
/// placement if it has one.
MT_API Tensor linear(const Tensor& x_TD, const CodedWeight& weight, const Tensor& codes,
                     const Tensor& b_N = {}, const Tensor& residual_TN = {});

}  // namespace mtrain
