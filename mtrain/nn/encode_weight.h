// Quantizes frozen weights, with the formulas of bitsandbytes 0.50 on CPUs (functional.py:
// quantize_4bit, quantize_blockwise, int8_vectorwise_quant) and bit-identical results.
// kernel/weight_codes.h dequantizes them. On the host; stateless, thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/kernel/weight_codes.h"

namespace mtrain {

/// Writes the codes of a block of kNf4Block values to kNf4Block / 2 bytes and returns its scale,
/// the largest absolute value.
MT_API float encode_nf4_block(const float* x, uint8_t* codes);
/// The same scale alone.
MT_API float nf4_scale(const float* x);

/// int8 and fp8: the scale of a row with this largest absolute value.
MT_API float row_scale(WeightFormat format, float largest);
/// Codes of some elements of a row with this largest absolute value.
MT_API void encode_row(WeightFormat format, std::span<const float> x, float largest,
                       uint8_t* codes);
MT_API float largest_of(std::span<const float> x);

/// Quantized scales (double quantization): scale i is decoded_scale(codes[i], factors[i /
/// kScaleGroup], offset), where `offset` is the mean of the scales.
struct ScaleCodes {
  std::vector<uint8_t> codes;
  std::vector<float> factors;
  float offset = 0;
};
MT_API ScaleCodes encode_scales(std::span<const float> scales);
/// The same with a given offset.
MT_API ScaleCodes encode_scales(std::span<const float> scales, float offset);

}  // namespace mtrain
