// QuantLayout: the memory layout of a low-precision matrix as matrix-product hardware reads it.
// Codes are stored in lines along the contraction dimension of the product; scales are stored in
// the order in which the hardware reads them. A value type.
#pragma once
#include "mtrain/base/quant_format.h"

namespace mtrain {

struct QuantLayout {
  int64_t lines = 0,
          k = 0;  // the operand is [lines, k]: lines are rows or columns of the product, k is its
                  // contraction dimension
  QuantFormat format = QuantFormat::e4m3;
  QuantScale scale = QuantScale::tensor;
  int64_t group = 0;       // consecutive elements along `k` that share a scale; 0: all of them
  int64_t line_group = 1;  // consecutive lines that share a scale

  /// Each line is padded with zeros to a multiple of 32 elements, which is whole 16-byte units in
  /// FP4 and FP8.
  MT_HD int64_t padded_k() const { return (k + 31) / 32 * 32; }
  MT_HD int64_t line_bytes() const {
    return format == QuantFormat::e2m1 ? padded_k() / 2 : padded_k();
  }
  MT_HD int64_t code_bytes() const { return lines * line_bytes(); }
  MT_HD bool square() const { return line_group > 1; }

  MT_HD int64_t groups() const { return group == 0 ? 0 : (padded_k() + group - 1) / group; }
  MT_HD int64_t padded_groups() const { return (groups() + 3) / 4 * 4; }
  MT_HD int64_t padded_lines() const { return (lines + 127) / 128 * 128; }
  MT_HD int64_t scale_size() const { return scale == QuantScale::power_of_two ? 4 : 1; }
  MT_HD int64_t scale_count() const {
    if (scale == QuantScale::tensor) return 0;
    if (scale != QuantScale::power_of_two) return padded_lines() * padded_groups();
    return square() ? padded_lines() / 128 * padded_groups() : groups() * lines;
  }
  MT_HD int64_t scale_bytes() const { return scale_count() * scale_size(); }

  /// Index of the scale of group `g` in `line` (cuBLAS 13.0, "Narrow Precision Data Types Usage").
  /// Float scales of 1-D groups: [groups][lines]. Float scales of square tiles: [blocks of
  /// lines][groups padded to a multiple of 4]. One-byte scales: tiles of 128 lines x 4 groups;
  /// within a tile the order is [l % 32][l / 32][g % 4].
  MT_HD int64_t scale_index(int64_t line, int64_t g) const {
    if (scale == QuantScale::power_of_two)
      return square() ? line / 128 * padded_groups() + g : g * lines + line;
    int64_t tile = line / 128 * (padded_groups() / 4) + g / 4;
    return tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + g % 4;
  }
};

namespace detail {
MT_HD uint8_t e8m0_code(float power_of_two_or_nan) {
  return static_cast<uint8_t>(bits_of(power_of_two_or_nan) >> 23);
}
}  // namespace detail

/// Writes a tile's scale `value` at `index`, from scale_index(), in the layout's scale type.
MT_HD void put_scale(const QuantLayout& layout, void* scales, int64_t index, float value) {
  if (layout.scale == QuantScale::power_of_two)
    static_cast<float*>(scales)[index] = value;
  else
    static_cast<uint8_t*>(scales)[index] =
        layout.scale == QuantScale::e8m0 ? detail::e8m0_code(value) : encode_format<E4M3>(value);
}
/// The inverse of put_scale(); 1 if tiles have no scales.
MT_HD float get_scale(const QuantLayout& layout, const void* scales, int64_t index) {
  if (layout.scale == QuantScale::tensor) return 1.0f;
  if (layout.scale == QuantScale::power_of_two) return static_cast<const float*>(scales)[index];
  uint8_t code = static_cast<const uint8_t*>(scales)[index];
  return layout.scale == QuantScale::e8m0 ? decode_e8m0(code) : decode_format<E4M3>(code);
}

/// The value of element `at` of a line, tile scale included (but not the scale of the whole
/// tensor). bf16 represents it exactly.
MT_HD float quantized_value(const QuantLayout& layout, const uint8_t* codes, const void* scales,
                            int64_t line, int64_t at) {
  const uint8_t* row = codes + line * layout.line_bytes();
  float value = layout.format == QuantFormat::e2m1
                    ? decode_format<E2M1>(row[at / 2] >> (at % 2 * 4) & 0xFu)
                : layout.format == QuantFormat::e4m3 ? decode_format<E4M3>(row[at])
                                                     : decode_format<E5M2>(row[at]);
  return layout.group == 0
             ? value
             : value * get_scale(layout, scales, layout.scale_index(line, at / layout.group));
}

}  // namespace mtrain
