// Floating-point types of at most eight bits, as storage; arithmetic is done in float. FP8 e4m3 and
// e5m2 (Micikevicius et al. 2022, arXiv:2209.05433), FP4 e2m1 and the power-of-two scale e8m0 (OCP
// Microscaling Formats 1.0, 2023). Stateless, branch-free, thread-safe; for CPU and CUDA sources.
#pragma once
#include <cstdint>

#include "mtrain/base/float16.h"

namespace mtrain {

namespace detail {
/// 2^exponent. REQUIRES: the result is a normal float.
constexpr float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(127 + exponent) << 23);
}
}  // namespace detail

enum class QuantFormat : uint8_t { e4m3, e5m2, e2m1 };
/// How the scales of a low-precision matrix are computed; formulas in kernel/quantize.h.
enum class QuantScale : uint8_t {
  tensor,        // one per tensor, from a given largest absolute value (amax)
  power_of_two,  // one per tile: the factor applied before rounding is a power of two, rounded down
  e8m0,          // one per tile: the factor applied after rounding is a power of two, rounded up
  nvfp4,         // one e4m3 scale per tile, and one float scale per tensor
};

/// Sign, 4 exponent bits, 3 fraction bits; no infinity, one NaN (magnitude 0x7F).
struct E4M3 {
  static constexpr int kFraction = 3, kMinExponent = -6, kBits = 8;
  static constexpr float kMax = 448.0f;
  static constexpr uint32_t kInfinity = 0x7FC00000u;  // the result for an infinite float: NaN
  static constexpr uint32_t kNan = 0x7F;
};
/// Sign, 5 exponent bits, 2 fraction bits; infinity and NaN as in IEEE 754.
struct E5M2 {
  static constexpr int kFraction = 2, kMinExponent = -14, kBits = 8;
  static constexpr float kMax = 57344.0f;
  static constexpr uint32_t kInfinity = 0x7F800000u;
  static constexpr uint32_t kNan = 0x7E;
};
/// Sign, 2 exponent bits, 1 fraction bit: 0, 0.5, 1, 1.5, 2, 3, 4, 6. The format has neither
/// infinity nor NaN: both become 6, and the scale of the block must mark them.
struct E2M1 {
  static constexpr int kFraction = 1, kMinExponent = 0, kBits = 4;
  static constexpr float kMax = 6.0f;
  static constexpr uint32_t kInfinity = 0x40C00000u;
  static constexpr uint32_t kNan = 0x7;
};

/// Largest finite value of a format.
constexpr float max_of(QuantFormat f) {
  return f == QuantFormat::e4m3 ? E4M3::kMax : f == QuantFormat::e5m2 ? E5M2::kMax : E2M1::kMax;
}
constexpr const char* name(QuantFormat f) {
  return f == QuantFormat::e4m3 ? "e4m3" : f == QuantFormat::e5m2 ? "e5m2" : "e2m1";
}

/// The nearest value of the format, ties to even; finite values above kMax become kMax. e5m2 keeps
/// infinity and NaN; e4m3 turns infinity into NaN and keeps NaN; e2m1 turns both into 6.
template <class F>
MT_HD float round_to_format(float x) {
  constexpr int kDropped = 23 - F::kFraction;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 + F::kMinExponent) << 23;
  // Adding kAlign to a subnormal gives a sum whose last bit counts the format's smallest steps, so
  // the float addition does the rounding.
  constexpr uint32_t kAlign = static_cast<uint32_t>(127 + F::kMinExponent - F::kFraction + 23)
                              << 23;
  uint32_t u = detail::bits_of(x), sign = u & 0x80000000u, m = u & 0x7FFFFFFFu;
  uint32_t normal =
      (m + ((1u << (kDropped - 1)) - 1) + ((m >> kDropped) & 1u)) & ~((1u << kDropped) - 1);
  uint32_t tiny =
      detail::bits_of((detail::float_of(m) + detail::float_of(kAlign)) - detail::float_of(kAlign));
  uint32_t rounded = m < kMinNormal ? tiny : normal;
  uint32_t most = detail::bits_of(F::kMax);
  rounded = rounded > most ? most : rounded;
  rounded = m == 0x7F800000u ? F::kInfinity : rounded;
  rounded = m > 0x7F800000u ? (F::kBits == 4 ? most : 0x7FC00000u) : rounded;
  return detail::float_of(sign | rounded);
}

/// Stochastic rounding to one of the two neighbours of x in the format: the upper one with the
/// probability that preserves the mean. `u` is uniform in [0, 1). Saturating; NaN becomes the
/// largest value, and the scale of the block must mark it.
template <class F>
MT_HD float round_to_format_stochastic(float x, float u) {
  uint32_t bits = detail::bits_of(x), sign = bits & 0x80000000u, m = bits & 0x7FFFFFFFu;
  float magnitude = detail::float_of(m);
  magnitude = magnitude <= F::kMax ? magnitude : F::kMax;
  int exponent = static_cast<int>(detail::bits_of(magnitude) >> 23) - 127;
  exponent = exponent < F::kMinExponent ? F::kMinExponent : exponent;
  float step = detail::float_of(static_cast<uint32_t>(127 + exponent - F::kFraction) << 23);
  float steps = magnitude / step;  // below 2^(kFraction + 1): exact, and so is its integer part
  float whole = static_cast<float>(static_cast<int32_t>(steps));
  float rounded = (whole + (steps - whole > u ? 1.0f : 0.0f)) * step;
  return detail::float_of(sign | detail::bits_of(rounded > F::kMax ? F::kMax : rounded));
}

/// The code (bits) of a value of the format, in the low kBits.
template <class F>
MT_HD uint8_t encode_format(float value) {
  constexpr int kDropped = 23 - F::kFraction;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 + F::kMinExponent) << 23;
  constexpr uint32_t kRebase = static_cast<uint32_t>(127 - 1 + F::kMinExponent) << F::kFraction;
  constexpr float kSteps = detail::power_of_two(F::kFraction - F::kMinExponent);
  uint32_t u = detail::bits_of(value), m = u & 0x7FFFFFFFu, sign = u >> 31 << (F::kBits - 1);
  uint32_t code = m < kMinNormal ? static_cast<uint32_t>(detail::float_of(m) * kSteps)
                                 : (m >> kDropped) - kRebase;
  if (m >= 0x7F800000u) code = m == 0x7F800000u && F::kInfinity == 0x7F800000u ? 0x7Cu : F::kNan;
  return static_cast<uint8_t>(sign | code);
}

/// The value of a code.
template <class F>
MT_HD float decode_format(uint8_t code) {
  constexpr int kDropped = 23 - F::kFraction;
  constexpr uint32_t kRebase = static_cast<uint32_t>(127 - 1 + F::kMinExponent) << F::kFraction;
  constexpr float kStep = detail::power_of_two(F::kMinExponent - F::kFraction);
  uint32_t sign = static_cast<uint32_t>(code >> (F::kBits - 1) & 1) << 31;
  uint32_t m = code & ((1u << (F::kBits - 1)) - 1);
  uint32_t bits = m >> F::kFraction ? (m + kRebase) << kDropped
                                    : detail::bits_of(static_cast<float>(m) * kStep);
  if (F::kBits == 8 && F::kInfinity != 0x7F800000u && m == F::kNan) bits = 0x7FC00000u;
  if (F::kInfinity == 0x7F800000u && m >= 0x7Cu) bits = m == 0x7Cu ? 0x7F800000u : 0x7FC00000u;
  return detail::float_of(sign | bits);
}

/// e8m0: a power of two from 2^-127 to 2^127, or NaN (0xFF).
MT_HD float decode_e8m0(uint8_t code) {
  if (code == 0xFF) return detail::float_of(0x7FC00000u);
  return code == 0 ? detail::float_of(0x00400000u)
                   : detail::float_of(static_cast<uint32_t>(code) << 23);
}
/// The smallest power of two >= `x` > 0, clamped to the format's range; NaN if x is infinite or
/// NaN.
MT_HD uint8_t encode_e8m0_up(float x) {
  uint32_t u = detail::bits_of(x) & 0x7FFFFFFFu;
  if (u >= 0x7F800000u) return 0xFF;
  uint32_t exponent = u >> 23;
  bool above = exponent == 0 ? u > 0x00400000u : (u & 0x7FFFFFu) != 0;
  exponent += above ? 1u : 0u;
  return static_cast<uint8_t>(exponent > 0xFEu ? 0xFEu : exponent);
}

}  // namespace mtrain
