// A vector register of floats at this instruction-set level, for tiled kernels that the compiler
// does not vectorise well. Stateless; thread-safe.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>
#include <utility>

#include "mtrain/base/export.h"
#include "mtrain/cpu/kernels/isa_kernels.h"

namespace mtrain::cpu::MT_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));

MT_HD Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
MT_HD void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
MT_HD Vec splat(float x) { return x - Vec{}; }

/// Maximum per lane; `b` where `a` is NaN.
MT_HD Vec max(Vec a, Vec b) { return a > b ? a : b; }

/// Exchanges each lane with the lane at distance `kDistance` (a power of two), for reductions over
/// a vector.
template <int kDistance>
MT_HD Vec exchange(Vec v) {
  return [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(v, v, (i ^ kDistance)...);
  }
  (std::make_integer_sequence<int, kLanes>{});
}
MT_HD float max_lane(Vec v) {
  if constexpr (kLanes > 8) v = max(v, exchange<8>(v));
  if constexpr (kLanes > 4) v = max(v, exchange<4>(v));
  v = max(v, exchange<2>(v));
  v = max(v, exchange<1>(v));
  return v[0];
}
MT_HD float sum_lanes(Vec v) {
  if constexpr (kLanes > 8) v += exchange<8>(v);
  if constexpr (kLanes > 4) v += exchange<4>(v);
  v += exchange<2>(v);
  v += exchange<1>(v);
  return v[0];
}

/// Transposes 4 x 4 words.
template <class Word>
MT_HD void transpose_four(Word __attribute__((vector_size(16))) (&row)[4]) {
  typedef Word Four __attribute__((vector_size(16)));
  Four half[4] = {__builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                  __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                  __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
                  __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7)};
  row[0] = __builtin_shufflevector(half[0], half[2], 0, 1, 4, 5);
  row[1] = __builtin_shufflevector(half[0], half[2], 2, 3, 6, 7);
  row[2] = __builtin_shufflevector(half[1], half[3], 0, 1, 4, 5);
  row[3] = __builtin_shufflevector(half[1], half[3], 2, 3, 6, 7);
}

constexpr float kLog2OfE = 1.4426950408889634f;  // e^x = 2^(x log2(e))

/// 2^r for |r| <= 1/2, relative error 3e-8 (the polynomial of exp_reduced, with the powers of ln 2
/// multiplied into its coefficients).
MT_HD Vec exp2_reduced(Vec r) {
  Vec p = splat(1.4604291e-4f);
  p = p * r + 1.3365899e-3f;
  p = p * r + 9.6203657e-3f;
  p = p * r + 5.5504252e-2f;
  p = p * r + 2.4022647e-1f;
  p = p * r + 6.9314718e-1f;
  return p * r + 1.0f;
}

/// 2^x for x up to about 100 within 2 ulp; 0 below -126; NaN stays NaN.
MT_HD Vec exp2(Vec x) {
#if defined(__AVX512F__)
  __mmask16 normal = _mm512_cmp_ps_mask(x, splat(-126.0f), _CMP_NLT_UQ);
  Vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_maskz_scalef_ps(normal, exp2_reduced(x - n), n);
#else
  constexpr float kRounding = 12582912.0f;  // after adding it, the low bits hold the rounded value
  Vec low = splat(-126.0f);
  Vec clamped = x < low ? low : x;
  Vec shifted = clamped + kRounding;
  Vec p = exp2_reduced(clamped - (shifted - kRounding));
  IntVec exponent;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent - (0x4B400000 - 127)) << 23;
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return x < low ? Vec{} : p * scale;
#endif
}

#if defined(__AVX512F__)
/// Transposes 16 x 16 words in registers.
inline void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  // r[4g + c] now holds column c of every 128-bit lane for rows 4g … 4g+3.
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xDD);
    t[c + 8] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xDD);
  }
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
    r[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xDD);
    r[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
    r[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xDD);
  }
}
#endif

}  // namespace mtrain::cpu::MT_ISA
