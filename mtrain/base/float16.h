// bfloat16 and IEEE half as storage types; arithmetic is done in float. For CPU and CUDA sources.
// Conversions round to nearest even; NaN stays NaN; half overflows to infinity (IEEE 754-2019
// §4.3.1). A GPU converts with its own instructions, which give the same bits except for a NaN's
// payload. Value types; thread-safe.
#pragma once
#include <cstdint>
#include <cstring>

#include "mtrain/base/export.h"

namespace mtrain {

namespace detail {
MT_HD uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
MT_HD float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
}  // namespace detail

/// bfloat16: sign, 8 exponent bits, 7 fraction bits.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  MT_HD explicit bf16(float f) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
#else
    uint32_t u = detail::bits_of(f);
    uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? ((u >> 16) | 0x40u) : rounded);
#endif
  }
  MT_HD explicit operator float() const {
    return detail::float_of(static_cast<uint32_t>(bits) << 16);
  }
};

/// IEEE binary16: sign, 5 exponent bits, 10 fraction bits.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  MT_HD explicit f16(float f) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
#else
    uint32_t u = detail::bits_of(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7FFFFFFFu;
    uint32_t half;
    if (magnitude >= 0x7F800000u) {  // infinity or NaN
      half = 0x7C00u | (magnitude > 0x7F800000u ? 0x200u | ((magnitude >> 13) & 0x3FFu) : 0u);
    } else if (magnitude >= 0x477FF000u) {  // rounds above the largest half (65504)
      half = 0x7C00u;
    } else if (magnitude >= 0x38800000u) {  // normal
      uint32_t rebased = magnitude - 0x38000000u;
      half = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
    } else {  // subnormal: adding 0.5 aligns the fraction with that of a half, and the addition
              // rounds
      half = detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3F000000u;
    }
    bits = static_cast<uint16_t>(sign | half);
#endif
  }
  MT_HD explicit operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u)
      return detail::float_of(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
    if (magnitude < 0x400u) {  // zero and subnormals: fraction * 2^-24
      float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
      return detail::float_of(sign | detail::bits_of(value));
    }
    return detail::float_of(sign | ((magnitude << 13) + 0x38000000u));
#endif
  }
};

MT_HD float to_float(float x) { return x; }
MT_HD float to_float(bf16 x) { return static_cast<float>(x); }
MT_HD float to_float(f16 x) { return static_cast<float>(x); }

}  // namespace mtrain
