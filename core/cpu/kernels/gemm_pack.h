// Layouts of packed operands. A panel of B holds kPanel columns as [units][kPanel], a tile of A kTileRows rows as
// [units][kTileRows], in 32-bit units of terms (tile_product.h). Missing columns and rows are zero. AVX-512 only.
#pragma once
#include "mtrain/cpu/kernels/gemm_tile.h"

#if defined(__AVX512F__)
namespace mtrain::cpu::MT_ISA {

/// 16 x 16 words transposed in registers.
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

/// A panel of B whose columns lie along `columns` rows of `units` words, `stride` words apart.
template <class Word>
inline void pack_panel_upright(const Word* from, int64_t stride, int64_t columns, int64_t units, Word* to) {
  for (int half = 0; half < 2; ++half)
    for (int64_t p = 0; p < units; p += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        int64_t column = half * kLanes + i;
        __mmask16 lanes = column < columns ? lanes_below(units - p) : 0;
        r[i] = _mm512_maskz_loadu_epi32(lanes, from + (column < columns ? column : 0) * stride + p);
      }
      transpose_words(r);
      for (int i = 0; i < 16 && p + i < units; ++i) _mm512_storeu_si512(to + (p + i) * kPanel + half * kLanes, r[i]);
    }
}

/// Units of 16 columns at term row p: the floats of that row, or pairs from rows 2p and 2p+1.
inline __m512i words_across(const float* from, int64_t ld, int64_t p, __mmask16 lanes) {
  return _mm512_maskz_loadu_epi32(lanes, from + p * ld);
}
#if defined(__AVX512BF16__)
inline __m512i words_across(const bf16* from, int64_t ld, int64_t p, __mmask16 lanes) {
  const bf16* even = from + 2 * p * ld;
  __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, even));
  __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, even + ld));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#endif

/// A panel of B whose terms lie in rows, `ld` values apart.
template <class T, class Word>
inline void pack_panel_across(const T* from, int64_t ld, int64_t columns, int64_t units, Word* to) {
  __mmask16 first = lanes_below(columns), second = lanes_below(columns - kLanes);
  for (int64_t p = 0; p < units; ++p) {
    _mm512_storeu_si512(to + p * kPanel, words_across(from, ld, p, first));
    _mm512_storeu_si512(to + p * kPanel + kLanes, words_across(from + kLanes, ld, p, second));
  }
}

/// A tile of A whose terms lie along its rows, of `units` words, `stride` words apart.
template <class Word>
inline void pack_tile_upright(const Word* from, int64_t stride, int64_t rows, int64_t units, Word* to) {
  for (int64_t p = 0; p < units; p += 16) {
    __m512i r[16];
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_maskz_loadu_epi32(i < rows ? lanes_below(units - p) : 0, from + (i < rows ? i : 0) * stride + p);
    transpose_words(r);
    for (int i = 0; i < 16 && p + i < units; ++i)
      _mm512_mask_storeu_epi32(to + (p + i) * kTileRows, lanes_below(kTileRows), r[i]);
  }
}

constexpr int kPackedTiles = 4;  // tiles of A that are packed together: 48 rows are three vectors

/// Four tiles of A whose terms lie in rows, `ld` values apart; tiles are `units * kTileRows` words apart.
template <class T, class Word>
inline void pack_tiles_across(const T* from, int64_t ld, int64_t rows, int64_t units, Word* to) {
  __mmask16 lanes[3];
  for (int j = 0; j < 3; ++j) lanes[j] = lanes_below(rows - j * kLanes);
  int64_t tile = units * kTileRows;
  for (int64_t p = 0; p < units; ++p) {
    __m512i w[3];
    for (int j = 0; j < 3; ++j) w[j] = words_across(from + j * kLanes, ld, p, lanes[j]);
    Word* at = to + p * kTileRows;
    auto put = [&](int quad, __m128i four) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at + quad / 3 * tile + quad % 3 * 4), four);
    };
    for (int j = 0; j < 3; ++j) {
      put(4 * j, _mm512_castsi512_si128(w[j]));
      put(4 * j + 1, _mm512_extracti32x4_epi32(w[j], 1));
      put(4 * j + 2, _mm512_extracti32x4_epi32(w[j], 2));
      put(4 * j + 3, _mm512_extracti32x4_epi32(w[j], 3));
    }
  }
}

}  // namespace mtrain::cpu::MT_ISA
#endif
