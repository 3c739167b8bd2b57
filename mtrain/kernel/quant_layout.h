// QuantLayout: how a matrix in a low-precision type lies in memory where a unit multiplies it: its
// codes in lines along the dimension that the product adds up, and its scales in the order that the
// unit reads them. Pure.
#pragma once
#include "mtrain/base/quant_format.h"

namespace mtrain {

struct QuantLayout {
  int64_t lines = 0,
          sum = 0;  // the operand is [lines, sum]: rows of the product, and what it adds up
  QuantFormat format = QuantFormat::e4m3;
  QuantScale scale = QuantScale::tensor;
  int64_t group = 0;       // neighbours along the sum that share a scale; 0: all
  int64_t line_group = 1;  // lines that share it as well

  /// Lines are filled up with zeros to whole 16 bytes.
  MT_HD int64_t padded_sum() const { return (sum + 31) / 32 * 32; }
  MT_HD int64_t line_bytes() const {
    return format == QuantFormat::e2m1 ? padded_sum() / 2 : padded_sum();
  }
  MT_HD int64_t code_bytes() const { return lines * line_bytes(); }
  MT_HD bool square() const { return line_group > 1; }

  MT_HD int64_t groups() const { return group == 0 ? 0 : (padded_sum() + group - 1) / group; }
  MT_HD int64_t padded_groups() const { return (groups() + 3) / 4 * 4; }
  MT_HD int64_t padded_lines() const { return (lines + 127) / 128 * 128; }
  MT_HD int64_t scale_size() const { return scale == QuantScale::power_of_two ? 4 : 1; }
  MT_HD int64_t scale_count() const {
    if (scale == QuantScale::tensor) return 0;
    if (scale != QuantScale::power_of_two) return padded_lines() * padded_groups();
    return square() ? padded_lines() / 128 * padded_groups() : groups() * lines;
  }
  MT_HD int64_t scale_bytes() const { return scale_count() * scale_size(); }

  /// Where the scale of these codes stands (cuBLAS 13.0, "Narrow Precision Data Types Usage").
  /// Float scales of groups: group by group, all lines of one together; those of squares: block of
  /// lines by block, groups filled up to a multiple of 4. Scales of a byte: in tiles of 128 lines x
  /// 4 groups, in them line l % 32 first, then l / 32.
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

MT_HD void put_scale(const QuantLayout& layout, void* scales, int64_t index, float value) {
  if (layout.scale == QuantScale::power_of_two)
    static_cast<float*>(scales)[index] = value;
  else
    static_cast<uint8_t*>(scales)[index] =
        layout.scale == QuantScale::e8m0 ? detail::e8m0_code(value) : encode_format<E4M3>(value);
}
MT_HD float get_scale(const QuantLayout& layout, const void* scales, int64_t index) {
  if (layout.scale == QuantScale::tensor) return 1.0f;
  if (layout.scale == QuantScale::power_of_two) return static_cast<const float*>(scales)[index];
  uint8_t code = static_cast<const uint8_t*>(scales)[index];
  return layout.scale == QuantScale::e8m0 ? decode_e8m0(code) : decode_format<E4M3>(code);
}

/// What place `at` of a line is worth, scales of tiles included: bf16 holds it.
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
