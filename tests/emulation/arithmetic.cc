// The CPU's own instructions calculate, with DAZ and FTZ set. Which NaN they pass on depends on the
// order of operands that the compiler picks, so NaN is settled here.
#include "arithmetic.h"

#include <immintrin.h>

#define MT_AVX512 __attribute__((target("avx512f")))

namespace mtrain::emulation {
namespace {

constexpr unsigned kNearestWithoutDenormals = 0x9fc0;  // all exceptions masked, FTZ, DAZ
constexpr int kQuietBit = 0x00400000;
constexpr int kDefaultNan = static_cast<int>(0xffc00000);

/// result, but where `operand` is NaN that one, quieted.
MT_AVX512 inline __m512 prefer_nan(__m512 result, __m512 operand) {
  __mmask16 nan = _mm512_cmp_ps_mask(operand, operand, _CMP_UNORD_Q);
  __m512i quiet = _mm512_or_epi32(_mm512_castps_si512(operand), _mm512_set1_epi32(kQuietBit));
  return _mm512_mask_mov_ps(result, nan, _mm512_castsi512_ps(quiet));
}

/// a * b + c. Of several NaN, a's comes first, then b's, then c's.
MT_AVX512 inline __m512 fused(__m512 a, __m512 b, __m512 c) {
  __m512 result = _mm512_fmadd_ps(a, b, c);
  __mmask16 nan = _mm512_cmp_ps_mask(result, result, _CMP_UNORD_Q);
  if (nan == 0) return result;
  result = _mm512_mask_mov_ps(result, nan, _mm512_castsi512_ps(_mm512_set1_epi32(kDefaultNan)));
  return prefer_nan(prefer_nan(prefer_nan(result, c), b), a);
}

MT_AVX512 inline __m512 plus(__m512 a, __m512 b) {
  __m512 result = _mm512_add_ps(a, b);
  __mmask16 nan = _mm512_cmp_ps_mask(result, result, _CMP_UNORD_Q);
  if (nan == 0) return result;
  result = _mm512_mask_mov_ps(result, nan, _mm512_castsi512_ps(_mm512_set1_epi32(kDefaultNan)));
  return prefer_nan(prefer_nan(result, b), a);
}

MT_AVX512 inline __m512 low_half(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
MT_AVX512 inline __m512 high_half(__m512i words) {
  return _mm512_castsi512_ps(
      _mm512_and_epi32(words, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

}  // namespace

void prepare_arithmetic() { _mm_setcsr(kNearestWithoutDenormals); }

MT_AVX512 void dot_pairs(const uint32_t* a, const uint32_t* b, uint32_t* sum) {
  __m512i left = _mm512_loadu_si512(a);
  __m512i right = _mm512_loadu_si512(b);
  __m512 result = fused(high_half(left), high_half(right), _mm512_loadu_ps(sum));
  _mm512_storeu_ps(sum, fused(low_half(left), low_half(right), result));
}

MT_AVX512 void dot_row(const uint32_t* a, int pairs, const uint32_t* b, uint32_t* sum) {
  __m512 low = _mm512_setzero_ps();
  __m512 high = _mm512_setzero_ps();
  for (int p = 0; p < pairs; ++p) {
    __m512i left = _mm512_set1_epi32(static_cast<int>(a[p]));
    __m512i right = _mm512_loadu_si512(b + p * kLanes);
    low = fused(low_half(left), low_half(right), low);
    high = fused(high_half(left), high_half(right), high);
  }
  _mm512_storeu_ps(sum, plus(_mm512_loadu_ps(sum), plus(low, high)));
}

uint16_t to_bf16(uint32_t single) {
  uint32_t magnitude = single & 0x7fffffff;
  if (magnitude < 0x00800000) return static_cast<uint16_t>(single >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(single >> 16 | 0x40);
  if (magnitude == 0x7f800000) return static_cast<uint16_t>(single >> 16);
  return static_cast<uint16_t>((single + 0x7fff + (single >> 16 & 1)) >> 16);
}

}  // namespace mtrain::emulation
