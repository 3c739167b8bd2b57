#include "mtrain/nn/encode_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mtrain/kernel/quantize.h"

namespace mtrain {
namespace {

/// The number of midpoints between neighbouring values that are below x, for x in [-1, 1]: the code
/// of the nearest value. Midpoints are further apart than the cells of a grid are wide, so that one
/// comparison finds the code within a cell.
class Nf4Search {
 public:
  Nf4Search() {
    midpoint_.fill(std::numeric_limits<float>::infinity());
    std::array<int, kCells> in_cell{};
    for (int i = 0; i < 15; ++i) {
      const float middle = (kNf4Values.of[i] + kNf4Values.of[i + 1]) / 2;
      const size_t cell = cell_of(middle);
      midpoint_[cell] = middle, ++in_cell[cell];
    }
    for (size_t cell = 1; cell < kCells; ++cell)
      below_[cell] = static_cast<uint8_t>(below_[cell - 1] + in_cell[cell - 1]);
  }
  uint8_t operator()(float x) const {
    const size_t cell = cell_of(x);
    return static_cast<uint8_t>(below_[cell] + (midpoint_[cell] < x ? 1 : 0));
  }

 private:
  static constexpr size_t kCells = 130;
  static size_t cell_of(float x) { return static_cast<size_t>((x + 1.0f) * 64.0f); }
  std::array<float, kCells> midpoint_;
  std::array<uint8_t, kCells> below_{};
};

/// bitsandbytes looks up the codes of scales in a table of 2^16 numbers in [-1, 1].
class ScaleSearch {
 public:
  ScaleSearch() : table_(kSize) {
    int code = 0;
    for (int i = 0; i < kSize; ++i) {
      const float x = -1.0f + (2.0f * static_cast<float>(i)) / (kSize - 1);
      while (code < 255 && middle(code) < x) ++code;
      table_[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
    }
  }
  uint8_t operator()(float x) const {
    const float inside = std::clamp(x, -1.0f, 1.0f);
    return table_[static_cast<uint16_t>((inside + 1.0f) * 0.5f * (kSize - 1) + 0.5f)];
  }

 private:
  static constexpr int kSize = 65536;
  static float middle(int code) {
    return 0.5f * (scale_code_value(kScaleCodeValues, static_cast<uint8_t>(code)) +
                   scale_code_value(kScaleCodeValues, static_cast<uint8_t>(code + 1)));
  }
  std::vector<uint8_t> table_;
};

}  // namespace

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (float v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

float nf4_scale(const float* x) { return largest_of({x, static_cast<size_t>(kNf4Block)}); }

float encode_nf4_block(const float* x, uint8_t* codes) {
  static const Nf4Search code_of;
  const float scale = nf4_scale(x), factor = 1.0f / std::max(scale, 1e-38f);
  for (int64_t i = 0; i < kNf4Block; i += 2) {
    const float first = std::clamp(x[i] * factor, -1.0f, 1.0f),
                second = std::clamp(x[i + 1] * factor, -1.0f, 1.0f);
    codes[i / 2] = static_cast<uint8_t>(code_of(first) << 4 | code_of(second));
  }
  return scale;
}

float row_scale(WeightFormat format, float largest) {
  return format == WeightFormat::int8 ? largest : tensor_scaling(largest, E4M3::kMax, 1).decode;
}

void encode_row(WeightFormat format, std::span<const float> x, float largest, uint8_t* codes) {
  if (format == WeightFormat::int8) {
    const float inverse = 1.0f / largest, factor = largest > 0 ? inverse * 127.0f : 0;
    constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    for (size_t i = 0; i < x.size(); ++i) {
      const float scaled = x[i] * factor, rounded = (scaled + kRounding) - kRounding;
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(rounded));
    }
    return;
  }
  const float factor = tensor_scaling(largest, E4M3::kMax, 1).encode;
  for (size_t i = 0; i < x.size(); ++i)
    codes[i] = encode_format<E4M3>(round_to_format<E4M3>(x[i] * factor));
}

ScaleCodes encode_scales(std::span<const float> scales) {
  double sum = 0;
  for (float s : scales) sum += static_cast<double>(s);
  return encode_scales(scales, static_cast<float>(sum / static_cast<double>(scales.size())));
}

ScaleCodes encode_scales(std::span<const float> scales, float offset) {
  static const ScaleSearch code_of;
  constexpr auto kGroup = static_cast<size_t>(kScaleGroup);
  ScaleCodes out{std::vector<uint8_t>(scales.size()), {}, offset};
  std::vector<float> around(kGroup);
  for (size_t begin = 0; begin < scales.size(); begin += kGroup) {
    const size_t count = std::min(kGroup, scales.size() - begin);
    for (size_t i = 0; i < count; ++i) around[i] = scales[begin + i] - offset;
    const float factor = largest_of({around.data(), count}), inverse = 1.0f / factor;
    out.factors.push_back(factor);
    for (size_t i = 0; factor > 0 && i < count; ++i)
      out.codes[begin + i] = code_of(around[i] * inverse);
  }
  return out;
}

}  // namespace mtrain
