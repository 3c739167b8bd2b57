// Layouts of packed operands. A panel of B holds kPanel columns as [units][kPanel], a tile of A kTileRows rows as
// [units][kTileRows], in 32-bit units of terms (tile_product.h). Missing columns and rows are zero. AVX-512 only.
#pragma once
#include <utility>

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
  for (int part = 0; part < kTileVectors; ++part)
    for (int64_t p = 0; p < units; p += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        int64_t column = part * kLanes + i;
        __mmask16 lanes = column < columns ? lanes_below(units - p) : 0;
        r[i] = _mm512_maskz_loadu_epi32(lanes, from + (column < columns ? column : 0) * stride + p);
      }
      transpose_words(r);
      for (int i = 0; i < 16 && p + i < units; ++i) _mm512_storeu_si512(to + (p + i) * kPanel + part * kLanes, r[i]);
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
  __mmask16 lanes[kTileVectors];
  for (int j = 0; j < kTileVectors; ++j) lanes[j] = lanes_below(columns - j * kLanes);
  for (int64_t p = 0; p < units; ++p)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j)
      _mm512_storeu_si512(to + p * kPanel + j * kLanes, words_across(from + j * kLanes, ld, p, lanes[j]));
}

constexpr int kPackedTiles = 8;  // tiles of A that are packed together: 48 rows are three vectors

/// Words 6q … 6q+5 of three vectors come first.
template <int Tile>
inline __m512i tile_words(const __m512i (&w)[3]) {
  constexpr int kFirst = Tile * kTileRows, kVector = kFirst / kLanes, kNext = kVector < 2 ? kVector + 1 : 2;
  return _mm512_alignr_epi32(w[kNext], w[kVector], kFirst % kLanes);
}

/// Eight tiles of A whose terms lie in rows, `ld` values apart; tiles are `units * kTileRows` words apart.
template <class T, class Word>
inline void pack_tiles_across(const T* from, int64_t ld, int64_t rows, int64_t units, Word* to) {
  static_assert(kPackedTiles * kTileRows == 3 * kLanes);
  __mmask16 lanes[3];
  for (int j = 0; j < 3; ++j) lanes[j] = lanes_below(rows - j * kLanes);
  int64_t tile = units * kTileRows;
  for (int64_t p = 0; p < units; ++p) {
    __m512i w[3];
    for (int j = 0; j < 3; ++j) w[j] = words_across(from + j * kLanes, ld, p, lanes[j]);
    [&]<int... Tile>(std::integer_sequence<int, Tile...>) {
      (_mm512_mask_storeu_epi32(to + Tile * tile + p * kTileRows, lanes_below(kTileRows), tile_words<Tile>(w)), ...);
    }(std::make_integer_sequence<int, kPackedTiles>());
  }
}

}  // namespace mtrain::cpu::MT_ISA
#endif
