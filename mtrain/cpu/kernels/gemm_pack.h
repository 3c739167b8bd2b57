// Layouts of packed operands. A panel of B holds kPanel columns as [units][kPanel] (for AMX as two
// halves, see PanelLayout); a tile of transposed A holds kTileRows rows as [units][kTileRows]. A
// unit is 32 bits along K (tile_product.h): 16-bit floats are converted to fp32 during packing,
// unless the CPU multiplies bf16 pairs. Missing columns and rows are zero, and so is the second
// half of an odd last pair. Stateless; thread-safe.
#pragma once
#include <utility>

#include "mtrain/cpu/kernels/gemm_tile.h"

namespace mtrain::cpu::MT_ISA {

template <class Word>
constexpr int64_t kTermsPerWord = std::is_same_v<Word, float> ? 1 : 2;

constexpr int kPackedTiles =
    8;  // tiles of A that are packed together: 48 rows are a whole number of vectors at every level
constexpr int kPackedVectors = kPackedTiles * kTileRows / kLanes;
static_assert(kPackedTiles * kTileRows % kLanes == 0);

/// Position of word p of vector `part` of a panel: either each row holds all columns, or the panel
/// has two halves with their own rows, so that one half consists of whole cache lines and fits in
/// L1.
struct PanelLayout {
  int64_t row, half;  // stride between rows, and between the halves, in words
  static PanelLayout whole() { return {kPanel, kPanel / 2}; }
  static PanelLayout halves(int64_t units) { return {kPanel / 2, units * (kPanel / 2)}; }
  int64_t at(int64_t p, int part) const {
    constexpr int kHalf = std::max(1, kTileVectors / 2);
    return p * row + part / kHalf * half + part % kHalf * kLanes;
  }
};

#if defined(__AVX512F__)
using WordVec = __m512i;
inline void put_words(void* to, WordVec words) { _mm512_storeu_si512(to, words); }

/// Consecutive words of a row that is contiguous along K and has `terms` elements.
template <class Word, class T>
inline WordVec words_along(const T* from, int64_t terms) {
  if constexpr (kTermsPerWord<Word> == 1)
    return _mm512_castps_si512(load_lanes(from, lanes_below(terms)));
  else
    return _mm512_maskz_loadu_epi16(terms >= 32 ? ~0u : terms <= 0 ? 0u : (1u << terms) - 1, from);
}

/// One word of each of several consecutive columns, at word p, where the `terms` elements along K
/// are rows: floats, or pairs from rows 2p and 2p+1.
template <class Word, class T>
inline WordVec words_across(const T* from, int64_t ld, int64_t p, [[maybe_unused]] int64_t terms,
                            Lanes lanes) {
  if constexpr (kTermsPerWord<Word> == 1) {
    return _mm512_castps_si512(load_lanes(from + p * ld, lanes));
  } else {
    const T* even = from + 2 * p * ld;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, even));
    __m512i high = _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(2 * p + 1 < terms ? lanes : Lanes(), even + ld));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
}

/// Packs a panel of B whose columns are contiguous along K, with stride `ld` between columns.
template <class Word, class T>
inline void pack_panel_upright(const T* from, int64_t ld, int64_t columns, int64_t terms,
                               PanelLayout layout, Word* to) {
  constexpr int64_t kPack = kTermsPerWord<Word>;
  int64_t units = (terms + kPack - 1) / kPack;
  for (int part = 0; part < kTileVectors; ++part)
    for (int64_t p = 0; p < units; p += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        int64_t column = part * kLanes + i;
        bool there = column < columns;
        r[i] = words_along<Word>(from + (there ? column : 0) * ld + p * kPack,
                                 there ? terms - p * kPack : 0);
      }
      transpose_words(r);
      for (int i = 0; i < 16 && p + i < units; ++i)
        _mm512_storeu_si512(to + layout.at(p + i, part), r[i]);
    }
}

/// Extracts words 6q … 6q+5 (q = Tile) from three vectors into the first lanes.
template <int Tile>
inline __m512i tile_words(const __m512i (&w)[3]) {
  constexpr int kFirst = Tile * kTileRows, kVector = kFirst / kLanes,
                kNext = kVector < 2 ? kVector + 1 : 2;
  return _mm512_alignr_epi32(w[kNext], w[kVector], kFirst % kLanes);
}

/// Writes one row of each of eight tiles of A; tiles are `tile` words apart.
template <class Word>
inline void put_tiles(const WordVec (&w)[kPackedVectors], int64_t tile, Word* to) {
  [&]<int... Tile>(std::integer_sequence<int, Tile...>) {
    (_mm512_mask_storeu_epi32(to + Tile * tile, lanes_below(kTileRows), tile_words<Tile>(w)), ...);
  }
  (std::make_integer_sequence<int, kPackedTiles>());
}

#else

using WordVec = Vec;
inline void put_words(float* to, WordVec words) { store(to, words); }

template <class Word, class T>
inline WordVec words_across(const T* from, int64_t ld, int64_t p, int64_t /*terms*/, Lanes lanes) {
  return load_lanes(from + p * ld, lanes);
}

/// Packs a panel of B whose columns are contiguous along K, with stride `ld` between columns:
/// strips are converted to floats in L1 and transposed from there.
template <class Word, class T>
inline void pack_panel_upright(const T* from, int64_t ld, int64_t columns, int64_t terms,
                               PanelLayout layout, Word* to) {
  typedef float Four __attribute__((vector_size(16)));
  constexpr int64_t kStrip = 64;
  alignas(64) float strip[kPanel][kStrip];
  for (int64_t first = 0; first < terms; first += kStrip) {
    int64_t n = std::min(kStrip, terms - first);
    for (int64_t c = 0; c < kPanel; ++c)
      for (int64_t p = 0; p < n; p += kLanes)
        store(strip[c] + p,
              c < columns ? load_lanes(from + c * ld + first + p, lanes_below(n - p)) : Vec{});
    for (int64_t p = 0; p < n; p += 4)
      for (int64_t c = 0; c < kPanel; c += 4) {
        Four square[4];
        for (int i = 0; i < 4; ++i) std::memcpy(&square[i], strip[c + i] + p, sizeof(Four));
        transpose_four<float>(square);
        for (int64_t i = 0; i < std::min<int64_t>(4, n - p); ++i)
          std::memcpy(to + (first + p + i) * layout.row + c, &square[i], sizeof(Four));
      }
  }
}

template <class Word>
inline void put_tiles(const WordVec (&w)[kPackedVectors], int64_t tile, Word* to) {
  float row[kPackedTiles * kTileRows];
  for (int j = 0; j < kPackedVectors; ++j) store(row + j * kLanes, w[j]);
  for (int t = 0; t < kPackedTiles; ++t)
    std::memcpy(to + t * tile, row + t * kTileRows, sizeof(float) * kTileRows);
}
#endif

/// Packs a panel of B that is row-major [K, columns], with row stride `ld`.
template <class Word, class T>
inline void pack_panel_across(const T* from, int64_t ld, int64_t columns, int64_t terms,
                              PanelLayout layout, Word* to) {
  int64_t units = (terms + kTermsPerWord<Word> - 1) / kTermsPerWord<Word>;
  Lanes lanes[kTileVectors];
  for (int j = 0; j < kTileVectors; ++j) lanes[j] = lanes_below(columns - j * kLanes);
  for (int64_t p = 0; p < units; ++p)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j)
      put_words(to + layout.at(p, j),
                words_across<Word>(from + j * kLanes, ld, p, terms, lanes[j]));
}

/// Packs eight tiles of A that is stored as [K, rows], with row stride `ld`; the tiles are
/// consecutive.
template <class Word, class T>
inline void pack_tiles_across(const T* from, int64_t ld, int64_t rows, int64_t terms, Word* to) {
  int64_t units = (terms + kTermsPerWord<Word> - 1) / kTermsPerWord<Word>;
  Lanes lanes[kPackedVectors];
  for (int j = 0; j < kPackedVectors; ++j) lanes[j] = lanes_below(rows - j * kLanes);
  for (int64_t p = 0; p < units; ++p) {
    WordVec w[kPackedVectors];
    for (int j = 0; j < kPackedVectors; ++j)
      w[j] = words_across<Word>(from + j * kLanes, ld, p, terms, lanes[j]);
    put_tiles(w, units * kTileRows, to + p * kTileRows);
  }
}

/// Packs a row of `n` values into words.
template <class T>
inline void pack_row(const T* from, int64_t n, uint32_t* to) {
  to[n / 2] = 0;
  std::memcpy(to, static_cast<const void*>(from), sizeof(T) * static_cast<size_t>(n));
}
template <class T>
inline void pack_row(const T* from, int64_t n, float* to) {
  int64_t p = 0;
  for (; p + kLanes <= n; p += kLanes) store(to + p, load_as(from + p));
  if (p < n) store_lanes(to + p, load_lanes(from + p, lanes_below(n - p)), lanes_below(n - p));
}

}  // namespace mtrain::cpu::MT_ISA
