// bf16 matrix products by AMX: two by two tiles of C stay in tile registers over a chunk of K. A is
// packed in tiles of 16 rows by 16 words; panels of B are packed in two halves (gemm_pack.h) whose
// rows are rows of AMX tiles. One operand of each tile product stays in the L1 cache, since L2
// alone does not deliver tiles fast enough. An AmxProduct is for one thread.
#pragma once
#include "mtrain/cpu/kernels/amx.h"
#include "mtrain/cpu/kernels/gemm_pack.h"
#include "mtrain/cpu/kernels/scratch.h"

#if defined(__AMX_BF16__)
namespace mtrain::cpu::MT_ISA {

constexpr int64_t kAmxDepth =
    256;  // words along K of half a panel that are multiplied with all rows: 32 KiB

/// Packs rows [row, last) of A, `terms` elements along K from `term` on, as consecutive tiles of 16
/// rows by 16 words, ordered along K first. The last tiles are padded with zeros, and so is the
/// second tile of a pair of row tiles if it is missing.
inline void pack_amx_rows(const bf16* a, int64_t lda, bool transposed, int64_t row, int64_t last,
                          int64_t term, int64_t terms, uint32_t* to) {
  int64_t end = row + round_up(last - row, kAmxRows),
          words = round_up(divide_up(terms, 2), kAmxWords);
  auto pack = [&](int64_t first, int64_t p) {
    __m512i r[16];
    Lanes rows = lanes_below(last - first);
    for (int64_t i = 0; i < 16; ++i) {
      if (transposed) {
        bool there = 2 * (p + i) < terms && rows != 0;
        r[i] = there ? words_across<uint32_t>(a + term * lda + first, lda, p + i, terms, rows)
                     : __m512i{};
      } else {
        bool there = first + i < last;
        r[i] = there ? words_along<uint32_t>(a + (first + i) * lda + term + 2 * p, terms - 2 * p)
                     : __m512i{};
      }
    }
    if (transposed) transpose_words(r);
    uint32_t* tile = to + (first - row) * words + p * 16;
    for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(tile + i * kAmxWords, r[i]);
  };
  if (transposed) {  // in the order of memory: whole cache lines, few pages at a time
    for (int64_t p = 0; p < words; p += kAmxWords)
      for (int64_t first = row; first < end; first += 16) pack(first, p);
  } else {
    for (int64_t first = row; first < end; first += 16)
      for (int64_t p = 0; p < words; p += kAmxWords) pack(first, p);
  }
}

/// Rows [0, rows) of packed A times columns [0, cols) of a panel, over `n` words along K. `sums`:
/// scratch of amx_sums(rows) floats.
template <class C>
class AmxProduct {
 public:
  AmxProduct(const uint32_t* a, const uint32_t* b, int64_t n, int64_t rows, int64_t cols,
             float* sums, const TileOutput<C>& out)
      : a_(a), b_(b), n_(n), rows_(rows), cols_(cols), sums_(sums), out_(out) {}

  void run() {
    AmxTiles tiles;
    if (n_ <= kAmxDepth) {  // rows of A stay in L1 for both halves
      for (int64_t row = 0, i = 0; row < rows_; row += kAmxRows)
        for (int64_t column = 0; column < cols_; column += kAmxColumns, i ^= 1)
          multiply(row, column, 0, sums_ + i * kSums);
      return put_last();
    }
    for (int64_t column = 0; column < cols_;
         column += kAmxColumns) {  // a part of half a panel stays in L1 for all rows
      for (int64_t p = 0; p < n_; p += kAmxDepth)
        for (int64_t row = 0; row < rows_; row += kAmxRows)
          multiply(row, column, p, sums_ + row * kAmxColumns);
      put_last();
    }
  }

 private:
  static constexpr int64_t kSums = kAmxRows * kAmxColumns;

  /// Adds the products from word p on to 32 by 32 sums at `sums`.
  void multiply(int64_t row, int64_t column, int64_t p, float* sums) {
    int64_t depth = std::min(kAmxDepth, n_ - p);
    bool ends = p + depth == n_;
    if (p == 0)
      zero_amx_sums();
    else
      load_amx_sums(sums, kAmxColumns);
    add_amx_terms({a_ + row * n_ + p * 16, kAmxWords, kAmxTile, n_ * 16},
                  b_ + column * n_ + p * kAmxColumns, kAmxColumns, depth);
    // Finish the previous sums here, so that vector instructions overlap with tile products.
    if (ends) put_last();
    store_amx_sums(sums, kAmxColumns);
    if (ends) last_ = {sums, row, column};
  }

  /// Writes the most recent complete sums to C.
  void put_last() {
    if (!last_.sums) return;
    TileOutput<C> to = moved(out_, last_.row, last_.column);
    for (int64_t m = 0; m < std::min(kAmxRows, rows_ - last_.row); ++m) {
      const float* from = last_.sums + m * kAmxColumns;
      Vec row[2] = {load(from), load(from + kLanes)};
      store_row(row, m, cols_ - last_.column, to);
    }
    last_.sums = nullptr;
  }

  const uint32_t *a_, *b_;
  int64_t n_, rows_, cols_;
  float* sums_;
  TileOutput<C> out_;
  struct {
    const float* sums = nullptr;
    int64_t row = 0, column = 0;
  } last_;
};

inline int64_t amx_sums(int64_t rows) {
  return (round_up(rows, kAmxRows) + kAmxRows) * kAmxColumns;
}

}  // namespace mtrain::cpu::MT_ISA
#endif
