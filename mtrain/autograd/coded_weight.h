// CodedWeight: a frozen matrix that is stored as codes (kernel/weight_codes.h). A product decodes
// it into a matrix of the type of its input, which has memory only during the product. A value;
// the tensors have shared ownership. For the rank's own thread.
#pragma once
#include "mtrain/autograd/tape.h"
#include "mtrain/kernel/weight_codes.h"

namespace mtrain {

struct MT_API CodedWeight {
  WeightFormat format = WeightFormat::nf4;
  int64_t rows = 0, cols = 0;
  Tensor codes;   // u8 [rows, code_bytes(format, cols)]
  Tensor scales;  // float [rows], or [rows, cols / kNf4Block] of nf4; undefined: they are codes
  Tensor scale_codes, groups, first_block;  // as in DecodeWeightArgs

  /// The matrix [rows, cols] in `dtype`.
  Tensor decode(ExecutionContext& ctx, DType dtype) const;
};

/// linear() with a weight as codes. `codes`: weight.codes, with its placement if there is one. The
/// weight gets no gradient.
MT_API Tensor linear(const Tensor& x_TD, const CodedWeight& weight, const Tensor& codes,
                     const Tensor& b_N = {}, const Tensor& residual_TN = {});

}  // namespace mtrain
