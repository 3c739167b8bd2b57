// Dequantization of frozen weights, with the formulas of bitsandbytes 0.50: the formats, and the
// value of each code. nn/encode_weight.h quantizes them. Stateless; for CPU and CUDA sources.
#pragma once
#include <cstdint>

#include "mtrain/base/quant_format.h"

namespace mtrain {

enum class WeightFormat : uint8_t {
  nf4,   // 16 quantiles of a normal distribution, two codes in a byte, the first one in its high
         // half; one scale for each 64 elements of a row (Dettmers et al. 2023, arXiv:2305.14314)
  int8,  // one scale for each row (Dettmers et al. 2022, arXiv:2208.07339)
  fp8    // e4m3, one scale for each row
};
constexpr const char* name(WeightFormat f) {
  return f == WeightFormat::nf4 ? "nf4" : f == WeightFormat::int8 ? "int8" : "fp8";
}

inline constexpr int64_t kNf4Block = 64;     // elements of a row that share a scale
inline constexpr int64_t kScaleGroup = 256;  // scales that share a factor, with double quantization

/// Bytes of the codes of a row.
constexpr int64_t code_bytes(WeightFormat f, int64_t cols) {
  return f == WeightFormat::nf4 ? cols / 2 : cols;
}

struct Nf4Values {
  float of[16];
};
// The tables are not inline variables: the object files of all instruction-set levels would then
// share one symbol.
constexpr Nf4Values kNf4Values = {
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

/// `scale`: the largest |x| of the row.
MT_HD float int8_value(uint8_t code, float scale) {
  return static_cast<float>(static_cast<int8_t>(code)) * scale * 7.874015718698502e-3f;  // 1 / 127
}
MT_HD float fp8_value(uint8_t code, float scale) { return decode_format<E4M3>(code) * scale; }

/// The positive values of the 8-bit codes of scales, without 1 (dynamic tree quantization: Dettmers
/// 2015, arXiv:1511.04561): fractions of 0 to 6 bits between powers of ten.
struct ScaleCodeValues {
  float of[127];
};
constexpr ScaleCodeValues kScaleCodeValues = {
    {5.5000004e-7f, 3.2500002e-6f, 7.75e-6f,      2.1249998e-5f, 4.375e-5f,     6.625e-5f,
     8.875e-5f,     1.5625001e-4f, 2.6875004e-4f, 3.8125002e-4f, 4.9375003e-4f, 6.062501e-4f,
     7.1875006e-4f, 8.3125e-4f,    9.437501e-4f,  0.0012812499f, 0.00184375f,   0.00240625f,
     0.00296875f,   0.0035312497f, 0.00409375f,   0.0046562497f, 0.0052187503f, 0.00578125f,
     0.00634375f,   0.00690625f,   0.00746875f,   0.00803125f,   0.00859375f,   0.009156249f,
     0.00971875f,   0.01140625f,   0.01421875f,   0.01703125f,   0.019843752f,  0.02265625f,
     0.02546875f,   0.028281251f,  0.03109375f,   0.03390625f,   0.036718752f,  0.03953125f,
     0.042343747f,  0.04515625f,   0.04796875f,   0.05078125f,   0.05359375f,   0.05640625f,
     0.059218753f,  0.06203125f,   0.06484375f,   0.067656256f,  0.070468746f,  0.07328125f,
     0.07609375f,   0.07890625f,   0.08171876f,   0.08453125f,   0.08734375f,   0.09015625f,
     0.092968754f,  0.09578126f,   0.09859375f,   0.107031256f,  0.12109375f,   0.13515624f,
     0.14921875f,   0.16328125f,   0.17734376f,   0.19140625f,   0.20546874f,   0.21953125f,
     0.23359375f,   0.24765624f,   0.26171875f,   0.27578127f,   0.28984374f,   0.30390626f,
     0.31796873f,   0.33203125f,   0.34609374f,   0.36015624f,   0.37421876f,   0.38828123f,
     0.40234375f,   0.41640624f,   0.43046874f,   0.44453126f,   0.45859373f,   0.47265625f,
     0.4867187f,    0.50078124f,   0.5148437f,    0.5289062f,    0.54296875f,   0.5570313f,
     0.5710938f,    0.58515626f,   0.5992187f,    0.61328125f,   0.6273438f,    0.6414063f,
     0.65546876f,   0.6695312f,    0.68359375f,   0.6976563f,    0.7117188f,    0.72578126f,
     0.7398437f,    0.75390625f,   0.7679688f,    0.78203124f,   0.79609376f,   0.8101562f,
     0.82421875f,   0.8382813f,    0.85234374f,   0.86640626f,   0.8804687f,    0.89453125f,
     0.9085938f,    0.92265624f,   0.93671876f,   0.9507812f,    0.96484375f,   0.9789063f,
     0.99296874f}};

/// Codes in ascending order of their values: -x for each x of the table, 0, each x, 1. `table`:
/// kScaleCodeValues, in memory that the device can read.
MT_HD float scale_code_value(const ScaleCodeValues& table, uint8_t code) {
  if (code == 127) return 0.0f;
  if (code == 255) return 1.0f;
  return code < 127 ? -table.of[126 - code] : table.of[code - 128];
}
/// The scale of a block, dequantized (double quantization). The product is rounded before the sum
/// on all devices: CPUs compute it in double, where it is exact, and GPUs by a function that is
/// never fused, so that no fused operation takes its place.
MT_HD float decoded_scale(const ScaleCodeValues& table, uint8_t code, float factor, float offset) {
#ifdef __CUDA_ARCH__
  const float product = __fmul_rn(scale_code_value(table, code), factor);
#else
  const auto product = static_cast<float>(static_cast<double>(scale_code_value(table, code)) *
                                          static_cast<double>(factor));
#endif
  return product + offset;
}

}  // namespace mtrain
