// Vectors of floats to and from memory in any floating type, and functions on them that activations are made of.
#pragma once
#include "mtrain/base/dtype.h"
#include "mtrain/cpu/kernels/vec.h"

namespace mtrain::cpu::MT_ISA {

template <class T>
MT_HD Vec load_as(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return load(from);
#if defined(__AVX512F__)
  } else if constexpr (std::is_same_v<T, bf16>) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  } else {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
  } else {
    float wide[kLanes];
    for (int i = 0; i < kLanes; ++i) wide[i] = to_float(from[i]);
    return load(wide);
#endif
  }
}

template <class T>
MT_HD void store_as(T* to, Vec v) {
  if constexpr (std::is_same_v<T, float>) {
    store(to, v);
#if defined(__AVX512BF16__)
  } else if constexpr (std::is_same_v<T, bf16>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
#endif
#if defined(__AVX512F__)
  } else if constexpr (std::is_same_v<T, f16>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  } else {
    float narrow[kLanes];
    store(narrow, v);
    for (int i = 0; i < kLanes; ++i) to[i] = T(narrow[i]);
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

/// The smaller lane by lane; `a` where it is NaN.
MT_HD Vec at_most(Vec a, float b) { return a > b ? splat(b) : a; }

/// 1 / (1 + 2^t); 0 for t above 100.
MT_HD Vec sigmoid_of_exp2(Vec t) {
  Vec s = reciprocal(1.0f + exp2(t));
  return t > 100.0f ? Vec{} : s;
}
/// 1 / (1 + e^-x).
MT_HD Vec sigmoid(Vec x) { return sigmoid_of_exp2(x * -kLog2OfE); }

}  // namespace mtrain::cpu::MT_ISA
