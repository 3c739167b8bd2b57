// The inner loop of a matrix product on packed operands: a tile of C stays in registers for all of
// K, and is then scaled, added to and stored. K is processed in 32-bit units (tile_product.h).
// Stateless; thread-safe.
#pragma once
#include <algorithm>

#include "mtrain/cpu/kernels/tile_product.h"
#include "mtrain/cpu/kernels/vec_types.h"

namespace mtrain::cpu::MT_ISA {

// Six rows of as many vectors as fit into the registers: 24 sums with 32 registers, 12 with 16. For
// products with few rows, A may stay unpacked, with any row stride.
constexpr int kTileRows = 6;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
constexpr int kPanel = kTileVectors * kLanes;  // columns of a packed panel of B

/// Output of a tile: c = beta * before + alpha * (sums + add) + bias.
template <class C>
struct TileOutput {
  C* c = nullptr;
  int64_t ldc = 0;
  const C* before = nullptr;  // c itself, or a matrix with the same layout
  float beta = 0;
  const float* bias = nullptr;  // per column, padded to whole panels; may be null
  const float* add =
      nullptr;  // partial sums over the earlier part of K, row stride `ld_add`; may be null
  int64_t ld_add = 0;
  float alpha = 1;
};

/// `out`, advanced to this row and column.
template <class C>
inline TileOutput<C> moved(TileOutput<C> out, int64_t row, int64_t column) {
  out.c += row * out.ldc + column;
  out.before += row * out.ldc + column;
  if (out.bias) out.bias += column;
  if (out.add) out.add += row * out.ld_add + column;
  return out;
}

// A mask of the first lanes of a vector, for the last columns of a matrix: other lanes are neither
// read nor written.
#if defined(__AVX512F__)
using Lanes = __mmask16;
inline Lanes lanes_below(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
}
inline Vec load_lanes(const float* from, Lanes lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
inline void store_lanes(float* to, Vec v, Lanes lanes) { _mm512_mask_storeu_ps(to, lanes, v); }
template <class T>
inline Vec load_lanes(const T* from, Lanes lanes) {
  return widen<T>(reinterpret_cast<HalfVec>(_mm256_maskz_loadu_epi16(lanes, from)));
}
template <class T>
inline void store_lanes(T* to, Vec v, Lanes lanes) {
  _mm256_mask_storeu_epi16(to, lanes, reinterpret_cast<__m256i>(narrow<T>(v)));
}
#else
using Lanes = int;
inline Lanes lanes_below(int64_t count) {
  return static_cast<int>(std::clamp<int64_t>(count, 0, kLanes));
}
template <class T>
inline Vec load_lanes(const T* from, Lanes lanes) {
  if (lanes == kLanes) return load_as(from);
  T some[kLanes] = {};
  for (int i = 0; i < lanes; ++i) some[i] = from[i];
  return load_as(some);
}
template <class T>
inline void store_lanes(T* to, Vec v, Lanes lanes) {
  if (lanes == kLanes) return store_as(to, v);
  T some[kLanes];
  store_as(some, v);
  for (int i = 0; i < lanes; ++i) to[i] = some[i];
}
#endif

/// Finishes and stores up to `cols` columns of a row of sums.
template <int Vectors, class C>
inline void store_row(const Vec (&sum)[Vectors], int64_t row, int64_t cols,
                      const TileOutput<C>& out) {
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) {
    Lanes lanes = lanes_below(cols - j * kLanes);
    Vec v = sum[j];
    if (out.add) v += load_lanes(out.add + row * out.ld_add + j * kLanes, lanes);
    v *= out.alpha;
    if (out.bias) v += load(out.bias + j * kLanes);
    if (out.beta != 0) v += out.beta * load_lanes(out.before + row * out.ldc + j * kLanes, lanes);
    store_lanes(out.c + row * out.ldc + j * kLanes, v, lanes);
  }
}

/// One tile: rows [0, Rows) of A times the first vectors of a panel; stores columns [0, cols).
template <class Unit, int Rows, int Vectors, class C>
inline void tile_product(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t units,
                         int64_t cols, const TileOutput<C>& out) {
  Vec sum[Rows][Vectors] = {};
  constexpr int kLine =
      std::max(1, 64 / (kLanes * static_cast<int>(sizeof(C))));  // vectors of C in a cache line
  for (int m = 0; m < Rows; ++m)
    for (int j = 0; j < Vectors; j += kLine)
      __builtin_prefetch(out.c + m * out.ldc + j * kLanes, 1);
  for (int64_t p = 0; p < units; ++p) {
    typename Unit::Words right[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) right[j] = Unit::words(b + p * kPanel + j * kLanes);
#pragma GCC unroll 6
    for (int m = 0; m < Rows; ++m) {
      typename Unit::Word x;
      std::memcpy(&x, a.data + m * a.row + p * a.step,
                  sizeof x);  // the memory may hold bf16 pairs
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sum[m][j] = Unit::multiply_add(sum[m][j], x, right[j]);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < Rows; ++m) store_row(sum[m], m, cols, out);
}

}  // namespace mtrain::cpu::MT_ISA
