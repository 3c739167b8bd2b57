// The inner loop of a matrix product on packed operands: a tile of C kept in registers while the terms pass by,
// and what happens to it before it is stored. Terms are walked in 32-bit units (tile_product.h). AVX-512 only.
#pragma once
#include "mtrain/cpu/kernels/tile_product.h"

#if defined(__AVX512F__)
namespace mtrain::cpu::MT_ISA {

// Six rows of four vectors: 24 sums, 4 vectors of B and one of A. Fewer rows of A at a time than of a taller tile, so that
// A may stay where it is, at whatever distance its rows are.
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
constexpr int kPanel = kTileVectors * kLanes;  // columns of a packed panel of B

/// Where a tile goes: c = beta * before + alpha * (sums + add) + bias.
template <class C>
struct TileOutput {
  C* c = nullptr;
  int64_t ldc = 0;
  const C* before = nullptr;  // c itself, or a matrix laid out like it
  float beta = 0;
  const float* bias = nullptr;  // per column, of whole panels; may be null
  const float* add = nullptr;   // partial sums of the terms before, rows `ld_add` apart; may be null
  int64_t ld_add = 0;
  float alpha = 1;
};

inline __mmask16 lanes_below(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
}
inline Vec load_lanes(const float* from, __mmask16 lanes) {
  return _mm512_maskz_loadu_ps(lanes, from);
}
inline void store_lanes(float* to, Vec v, __mmask16 lanes) {
  _mm512_mask_storeu_ps(to, lanes, v);
}
#if defined(__AVX512BF16__)
inline Vec load_lanes(const bf16* from, __mmask16 lanes) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
  return reinterpret_cast<Vec>(_mm512_slli_epi32(wide, 16));
}
inline void store_lanes(bf16* to, Vec v, __mmask16 lanes) {
  _mm256_mask_storeu_epi16(to, lanes, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}
#endif

/// Adds up to `cols` columns of a row of sums to what was there, and stores them.
template <int Vectors, class C>
inline void store_row(const Vec (&sum)[Vectors], int64_t row, int64_t cols, const TileOutput<C>& out) {
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) {
    __mmask16 lanes = lanes_below(cols - j * kLanes);
    Vec v = sum[j];
    if (out.add) v += load_lanes(out.add + row * out.ld_add + j * kLanes, lanes);
    v *= out.alpha;
    if (out.bias) v += load(out.bias + j * kLanes);
    if (out.beta != 0) v += out.beta * load_lanes(out.before + row * out.ldc + j * kLanes, lanes);
    store_lanes(out.c + row * out.ldc + j * kLanes, v, lanes);
  }
}

/// One tile: rows [0, Rows) of A times the first vectors of a panel, columns [0, cols) of it.
template <class Unit, int Rows, int Vectors, class C>
inline void tile_product(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t units, int64_t cols,
                         const TileOutput<C>& out) {
  Vec sum[Rows][Vectors] = {};
  constexpr int kLine = 64 / (kLanes * static_cast<int>(sizeof(C)));  // vectors of C in a cache line
  for (int m = 0; m < Rows; ++m)
    for (int j = 0; j < Vectors; j += kLine) __builtin_prefetch(out.c + m * out.ldc + j * kLanes, 1);
  for (int64_t p = 0; p < units; ++p) {
    typename Unit::Words right[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) right[j] = Unit::words(b + p * kPanel + j * kLanes);
#pragma GCC unroll 6
    for (int m = 0; m < Rows; ++m) {
      typename Unit::Word x;
      std::memcpy(&x, a.data + m * a.row + p * a.step, sizeof x);  // the memory may hold pairs of bf16
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sum[m][j] = Unit::multiply_add(sum[m][j], x, right[j]);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < Rows; ++m) store_row(sum[m], m, cols, out);
}

}  // namespace mtrain::cpu::MT_ISA
#endif
