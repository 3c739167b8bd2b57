// Products of bf16 by AMX: two by two tiles of C stay in tile registers while the terms pass by. A is packed in tiles of 16
// rows by 16 words, panels of B are those of PairUnit (gemm_pack.h), whose rows are tiles' rows as they lie.
#pragma once
#include "mtrain/cpu/kernels/gemm_pack.h"
#include "mtrain/cpu/kernels/scratch.h"

#if defined(__AMX_BF16__)
namespace mtrain::cpu::MT_ISA {

/// Words as for PairUnit; only its type differs.
struct TileUnit : PairUnit {};

constexpr int64_t kAmxRows = 32;   // of A at a time: two tiles
constexpr int64_t kAmxWords = 16;  // of terms in a tile's row
constexpr int64_t kAmxTile = 16 * kAmxWords;

/// The calling thread's tile registers, set up as eight tiles of 16 rows of 64 bytes while the object lives.
class AmxTiles {
 public:
  explicit AmxTiles(bool wanted) : wanted_(wanted) {
    if (!wanted) return;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } layout;
    static_assert(sizeof layout == 64);
    asm volatile("ldtilecfg %0" : : "m"(layout));  // g++ 12's intrinsic does not say that it reads all of it
  }
  ~AmxTiles() {
    if (wanted_) _tile_release();
  }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

 private:
  bool wanted_;
};

/// Packs rows [row, last) of A, `terms` of them from `term` on, as consecutive tiles of 16 rows by 16 words, words first. Zeros fill
/// the last tiles, and a second tile of rows where there is one alone.
inline void pack_amx_rows(const bf16* a, int64_t lda, bool transposed, int64_t row, int64_t last, int64_t term, int64_t terms,
                          uint32_t* to) {
  for (int64_t first = row; first < row + round_up(last - row, kAmxRows); first += 16)
    for (int64_t p = 0; 2 * p < terms; p += kAmxWords, to += kAmxTile) {
      __m512i r[16];
      Lanes rows = lanes_below(last - first);
      for (int64_t i = 0; i < 16; ++i) {
        if (transposed) {
          bool there = 2 * (p + i) < terms && rows != 0;
          r[i] = there ? words_across<uint32_t>(a + term * lda + first, lda, p + i, terms, rows) : __m512i{};
        } else {
          bool there = first + i < last;
          r[i] = there ? words_along<uint32_t>(a + (first + i) * lda + term + 2 * p, terms - 2 * p) : __m512i{};
        }
      }
      if (transposed) transpose_words(r);
      for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kAmxWords, r[i]);
    }
}

/// Rows [0, rows) of two packed tiles of A times columns [0, cols) of a panel, `n` words of terms.
template <class C>
inline void amx_product(const uint32_t* a, const uint32_t* b, int64_t n, int rows, int64_t cols, const TileOutput<C>& out) {
  constexpr int kVectors = 2;  // of C that two tiles' columns are
  alignas(64) float sums[kAmxRows][kVectors * kLanes];
  const uint32_t* below = a + n * 16;  // the second 16 rows
  for (int64_t column = 0; column < cols; column += kVectors * kLanes) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t p = 0; p < n; p += kAmxWords) {
      const uint32_t* right = b + p * kPanel + column;
      _tile_loadd(4, a + p * 16, 64);
      _tile_loadd(5, below + p * 16, 64);
      _tile_loadd(6, right, kPanel * 4);
      _tile_loadd(7, right + kLanes, kPanel * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums[0], sizeof sums[0]);
    _tile_stored(1, sums[0] + kLanes, sizeof sums[0]);
    _tile_stored(2, sums[16], sizeof sums[0]);
    _tile_stored(3, sums[16] + kLanes, sizeof sums[0]);
    TileOutput<C> to = out;
    to.c += column;
    to.before += column;
    if (out.bias) to.bias += column;
    if (out.add) to.add += column;
    for (int m = 0; m < rows; ++m) {
      Vec row[kVectors] = {load(sums[m]), load(sums[m] + kLanes)};
      store_row(row, m, cols - column, to);
    }
  }
}

}  // namespace mtrain::cpu::MT_ISA
#endif
