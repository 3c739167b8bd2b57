// The inner loop of a matrix product on packed operands: a tile of C kept in registers while the terms pass by,
// and what happens to it before it is stored. Terms are walked in 32-bit units (tile_product.h). AVX-512 only.
#pragma once
#include "mtrain/cpu/kernels/tile_product.h"

#if defined(__AVX512F__)
namespace mtrain::cpu::MT_ISA {

constexpr int kTileRows = 12;          // with two vectors of columns: 24 sums, 2 vectors of B and some of A
constexpr int kPanel = 2 * kLanes;     // columns of a packed panel of B

/// Where a tile goes: c = beta * before + sums + bias + add.
template <class C>
struct TileOutput {
  C* c = nullptr;
  int64_t ldc = 0;
  const C* before = nullptr;  // c itself, or a matrix laid out like it
  float beta = 0;
  const float* bias = nullptr;  // per column, of whole panels; may be null
  const float* add = nullptr;   // partial sums of the terms before, rows `ld_add` apart; may be null
  int64_t ld_add = 0;
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

/// One tile: rows [0, Rows) of A times a panel, columns [0, cols) of it.
template <class Unit, int Rows, class C>
inline void tile_product(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t units, int64_t cols,
                         const TileOutput<C>& out) {
  Vec sum[Rows][2] = {};
  for (int m = 0; m < Rows; ++m) {
    __builtin_prefetch(out.c + m * out.ldc, 1);
    if constexpr (sizeof(C) == 4) __builtin_prefetch(out.c + m * out.ldc + kLanes, 1);
  }
  for (int64_t p = 0; p < units; ++p) {
    auto left = Unit::words(b + p * kPanel), right = Unit::words(b + p * kPanel + kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < Rows; ++m) {
      typename Unit::Word x;
      std::memcpy(&x, a.data + m * a.row + p * a.step, sizeof x);  // the memory may hold pairs of bf16
      sum[m][0] = Unit::multiply_add(sum[m][0], x, left);
      sum[m][1] = Unit::multiply_add(sum[m][1], x, right);
    }
  }
  __mmask16 lanes[2] = {lanes_below(cols), lanes_below(cols - kLanes)};
#pragma GCC unroll 12
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      Vec v = sum[m][j];
      C* c = out.c + m * out.ldc + j * kLanes;
      if (out.add) v += load_lanes(out.add + m * out.ld_add + j * kLanes, lanes[j]);
      if (out.bias) v += load(out.bias + j * kLanes);
      if (out.beta != 0) v += out.beta * load_lanes(out.before + m * out.ldc + j * kLanes, lanes[j]);
      store_lanes(c, v, lanes[j]);
    }
  }
}

}  // namespace mtrain::cpu::MT_ISA
#endif
