// Elementary functions as branch-free float polynomials: the compiler vectorises loops over them
// for any instruction set. A GPU has an instruction for exp. NaN stays NaN. Stateless; thread-safe.
#pragma once
#include <cmath>
#include <cstdint>

#include "mtrain/base/export.h"
#include "mtrain/base/float16.h"

namespace mtrain {

namespace detail {
/// exp(r) for |r| <= ln(2)/2, relative error 3e-8 (minimax fit of (exp(r) - 1 - r) / r²).
MT_HD float exp_reduced(float r) {
  float p = 0.0013168239545140988f;
  p = p * r + 0.008353546060117675f;
  p = p * r + 0.041676355795351804f;
  p = p * r + 0.1666670973633497f;
  p = p * r + 0.4999999192456575f;
  return p * (r * r) + r + 1.0f;
}
/// x + kRoundingMagic has round(x) in its low bits, for |x| < 2^22.
constexpr float kRoundingMagic = 12582912.0f;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kErfcxScale = 0.38f;
/// The scaled complementary error function at z >= 0, as a polynomial in t = 1 / (1 + kErfcxScale
/// z) (minimax fit, relative error 2e-8). V: float or a vector of floats.
template <class V>
MT_HD V erfcx(V t) {
  V p = t * 0.058874087276849806f - 0.2618091936623037f;
  p = p * t + 0.3628367128103879f;
  p = p * t - 0.16022111595360428f;
  p = p * t + 0.22911695458701564f;
  p = p * t + 0.13906302108533694f;
  p = p * t + 0.2037932009793331f;
  p = p * t + 0.2139364785519926f;
  return (p * t + 0.2144098739139595f) * t;
}
/// (tanh(x) - x) / x as a polynomial in z = x², for |x| <= 0.625 (minimax fit; tanh has a relative
/// error of 8e-8). V: float or a vector of floats.
template <class V>
MT_HD V tanh_near_zero(V z) {
  V p = z * -0.0057049705646932125f + 0.020639071241021156f;
  p = p * z - 0.05373971164226532f;
  p = p * z + 0.13331441581249237f;
  return (p * z - 0.3333328068256378f) * z;
}
constexpr float kTanhNearZero = 0.625f;
constexpr float kLn2High = 0.693145751953125f, kLn2Low = 1.428606765330187e-6f;

#ifdef __CUDA_ARCH__
/// e^x by the instruction for 2^t, whose relative error is 2^-22.5 (PTX ISA, ex2.approx); the
/// factor 1 + c makes up for the rounding of t = x * log2(e). Not for |x| beyond 90.
__device__ __forceinline__ float exp_by_instruction(float x) {
  float t = x * kLog2e, y;
  float c = (fmaf(x, kLog2e, -t) + x * 1.9259629911266175e-8f) * 0.6931471805599453f;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(t));
  return y * (1.0f + c);
}
#endif
}  // namespace detail

/// e^x within 2 ulp, on a GPU within 5; 0 below -87.3 (subnormal results are flushed), infinity
/// above 88.72.
MT_HD float exp_fast(float x) {
  using namespace detail;
  float clamped = x > 89.0f ? 89.0f : (x < -87.3f ? -87.3f : x);
#ifdef __CUDA_ARCH__
  float y = exp_by_instruction(clamped);
#else
  float shifted = clamped * kLog2e + kRoundingMagic;
  float n = shifted - kRoundingMagic;
  int32_t exponent = static_cast<int32_t>(bits_of(shifted) - bits_of(kRoundingMagic));
  float y = exp_reduced((clamped - n * kLn2High) - n * kLn2Low);
  int32_t half = exponent >> 1;  // two factors, since 2^128 is not representable
  y *= float_of(static_cast<uint32_t>(half + 127) << 23);
  y *= float_of(static_cast<uint32_t>(exponent - half + 127) << 23);
#endif
  return x < -87.3f ? 0.0f : y;
}

/// e^x for x <= 0 (softmax after subtracting the maximum) within 2 ulp, on a GPU within 5; 0 below
/// -87.3.
MT_HD float exp_nonpositive(float x) {
  using namespace detail;
  float clamped = x < -87.3f ? -87.3f : x;
#ifdef __CUDA_ARCH__
  float y = exp_by_instruction(clamped);
#else
  float shifted = clamped * kLog2e + kRoundingMagic;
  float n = shifted - kRoundingMagic;
  float y = exp_reduced((clamped - n * kLn2High) - n * kLn2Low);
  y *= float_of((bits_of(shifted) - bits_of(kRoundingMagic) + 127u) << 23);
#endif
  return x < -87.3f ? 0.0f : y;
}

/// 1 / (1 + e^-x); relative error below 4e-7.
MT_HD float sigmoid(float x) { return 1.0f / (1.0f + exp_fast(-x)); }

/// tanh(x); relative error below 3e-7.
MT_HD float tanh_fast(float x) {
  float size = std::fabs(x), e = exp_nonpositive(-2.0f * size);
  float near = x * detail::tanh_near_zero(x * x) + x, far = (1.0f - e) / (1.0f + e);
  return size < detail::kTanhNearZero ? near : x < 0.0f ? -far : far;
}

/// The standard normal distribution at x.
struct Normal {
  float cdf;  // Φ(x), relative error below 1e-6 for |x| < 5
  float pdf;  // exp(-x²/2) / sqrt(2π)
};
/// Φ(-|x|) = exp(-x²/2) · erfcx(|x|/√2) / 2.
MT_HD Normal normal(float x) {
  float z = std::fabs(x) * 0.7071067811865476f;
  float gauss = exp_nonpositive(-0.5f * x * x);
  float t = 1.0f / (1.0f + detail::kErfcxScale * z);
  float tail = 0.5f * gauss * detail::erfcx(t);
  return {x > 0.0f ? 1.0f - tail : tail, gauss * 0.3989422804014327f};
}

}  // namespace mtrain
