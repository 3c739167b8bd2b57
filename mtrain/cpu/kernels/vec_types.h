// Loads and stores of vectors of floats from memory of any floating type, and the functions that
// activations consist of. Conversions round to nearest even like those of float16.h, at every
// level. Stateless; thread-safe.
#pragma once
#include "mtrain/base/dtype.h"
#include "mtrain/cpu/kernels/vec.h"

namespace mtrain::cpu::MT_ISA {

typedef uint32_t UintVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));  // a vector of 16-bit floats

template <class To, class From>
MT_HD To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
MT_HD Vec widen(HalfVec half);
template <>
MT_HD Vec widen<bf16>(HalfVec half) {
#if defined(__AVX512F__)  // the compiler converts halves of the vector
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(half)), 16));
#else
  return bits_as<Vec>(__builtin_convertvector(half, UintVec) << 16);
#endif
}
template <>
MT_HD Vec widen<f16>(HalfVec half) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(reinterpret_cast<__m256i>(half));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(half));
#elif defined(__aarch64__)
  return vcvt_f32_f16(bits_as<float16x4_t>(half));
#else
  UintVec wide = __builtin_convertvector(half, UintVec);
  UintVec magnitude = (wide & 0x7FFF) << 13,
          special = (wide & 0x7C00) == 0x7C00 ? magnitude | 0x7F800000 : UintVec{};
  // A product converts the exponent of a half to that of a float; it is exact for subnormal halves
  // too.
  UintVec value = bits_as<UintVec>(bits_as<Vec>(magnitude) * 0x1p112f);
  return bits_as<Vec>((special != 0 ? special : value) | (wide & 0x8000) << 16);
#endif
}

template <class T>
MT_HD HalfVec narrow(Vec v);
template <>
MT_HD HalfVec narrow<bf16>(Vec v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<HalfVec>(_mm512_cvtneps_pbh(v));
#else
  UintVec u = bits_as<UintVec>(v), rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
  return __builtin_convertvector(v != v ? (u >> 16) | 0x40 : rounded, HalfVec);
#endif
}
template <>
MT_HD HalfVec narrow<f16>(Vec v) {
#if defined(__AVX512F__)
  return reinterpret_cast<HalfVec>(
      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return reinterpret_cast<HalfVec>(
      _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__aarch64__)
  return bits_as<HalfVec>(vcvt_f16_f32(v));
#else
  UintVec u = bits_as<UintVec>(v), magnitude = u & 0x7FFFFFFF, rebased = magnitude - 0x38000000;
  UintVec normal = (rebased + 0xFFF + ((rebased >> 13) & 1)) >> 13;
  UintVec tiny = bits_as<UintVec>(bits_as<Vec>(magnitude) + 0.5f) -
                 0x3F000000;  // the addition rounds to a subnormal half
  UintVec half = magnitude < 0x38800000 ? tiny : normal;
  half = magnitude >= 0x477FF000 ? UintVec{} + 0x7C00 : half;  // above the largest half
  half = v != v ? ((magnitude >> 13) & 0x3FF) | 0x7E00 : half;
  return __builtin_convertvector(half | (u >> 16 & 0x8000), HalfVec);
#endif
}

template <class T>
MT_HD Vec load_as(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return load(from);
  } else {
    HalfVec half;
    std::memcpy(&half, from, sizeof half);
    return widen<T>(half);
  }
}

template <class T>
MT_HD void store_as(T* to, Vec v) {
  if constexpr (std::is_same_v<T, float>) {
    store(to, v);
  } else {
    HalfVec half = narrow<T>(v);
    std::memcpy(static_cast<void*>(to), &half, sizeof half);
  }
}

/// 1 / x for 1 <= x <= 2^101, within 2 ulp. NaN stays NaN.
MT_HD Vec reciprocal(Vec x) {
#if defined(__AVX512F__)
  Vec y = _mm512_rcp14_ps(x);
  return y * (2.0f - x * y);
#else
  return 1.0f / x;
#endif
}

/// Minimum per lane; `a` where it is NaN.
MT_HD Vec at_most(Vec a, float b) { return a > b ? splat(b) : a; }

/// 1 / (1 + 2^t); 0 for t above 100.
MT_HD Vec sigmoid_of_exp2(Vec t) {
  Vec s = reciprocal(1.0f + exp2(t));
  return t > 100.0f ? Vec{} : s;
}
/// tanh(x); relative error below 3e-7. NaN stays NaN.
MT_HD Vec tanh(Vec x) {
  Vec a = x < 0.0f ? -x : x, e = exp2(a * (-2.0f * kLog2OfE));
  Vec far = (1.0f - e) * reciprocal(1.0f + e), near = x * detail::tanh_near_zero(x * x) + x;
  return a < detail::kTanhNearZero ? near : x < 0.0f ? -far : far;
}

/// 1 / (1 + e^-x).
MT_HD Vec sigmoid(Vec x) { return sigmoid_of_exp2(x * -kLog2OfE); }

}  // namespace mtrain::cpu::MT_ISA
