// Small matrix products of tiles in the L1 and L2 caches: C[M, N] (+)= A[M, K] · B[K, N], C in
// float. K is processed in 32-bit units: one float, or a pair of consecutive bf16 values where the
// CPU multiplies such pairs. B and C are row-major, and N is a multiple of the vector length. A has
// arbitrary strides, so its transpose needs no copy. Stateless; thread-safe.
#pragma once
#include <type_traits>

#include "mtrain/cpu/kernels/amx.h"

namespace mtrain::cpu::MT_ISA {

/// One unit is one float.
struct FloatUnit {
  static constexpr int kPack = 1;
  using Word = float;
  using Words = Vec;  // a vector of words
  static MT_HD Words words(const Word* from) { return load(from); }
  static MT_HD Vec multiply_add(Vec sum, Word a, Words b) { return sum + a * b; }
};

#if defined(__AVX512BF16__)
/// One unit is two bf16 values, the first one in the low half. Products and sums are in float.
struct PairUnit {
  static constexpr int kPack = 2;
  using Word = uint32_t;
  using Words = __m512i;
  static MT_HD Words words(const Word* from) { return _mm512_loadu_si512(from); }
  static MT_HD Vec multiply_add(Vec sum, Word a, Words b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))),
                            reinterpret_cast<__m512bh>(b));
  }
};
#endif

#if defined(__AMX_BF16__)
/// The same words as PairUnit, multiplied by AMX.
struct TileUnit : PairUnit {};
#endif

/// bf16 uses pair products where the CPU has them; all other types are converted to float.
template <class T>
struct UnitOf {
  using Type = FloatUnit;
};
#if defined(__AMX_BF16__)
template <>
struct UnitOf<bf16> {
  using Type = TileUnit;
};
#elif defined(__AVX512BF16__)
template <>
struct UnitOf<bf16> {
  using Type = PairUnit;
};
#endif

/// Rows of C that fit into vector registers, with two vectors of columns.
constexpr int kRegisterRows = kLanes == 16 ? 8 : 4;

/// Products consist of blocks: this number of rows, and multiples of these numbers of columns and
/// of units along K.
template <class Word>
constexpr int kBlockRows = kRegisterRows;
template <class Word>
constexpr int64_t kBlockColumns = kLanes;
template <class Word>
constexpr int64_t kBlockTerms = std::is_same_v<Word, float> ? 1 : 2;
/// Per-thread set-up while it multiplies blocks (AMX configures tile registers).
template <class Word>
struct BlockSetup {};
#if defined(__AMX_BF16__)
template <>
inline constexpr int kBlockRows<uint32_t> = kAmxRows;
template <>
inline constexpr int64_t kBlockColumns<uint32_t> = kAmxColumns;
template <>
inline constexpr int64_t kBlockTerms<uint32_t> = 2 * kAmxWords;
template <>
struct BlockSetup<uint32_t> : AmxTiles {};
#endif

/// A's unit (m, k) is at data[m * row + k * step].
template <class Word>
struct TileA {
  const Word* data;
  int64_t row, step;
};

/// `Row`: a.row if the compiler knows it, else 0. With an unknown stride, eight rows need eight
/// pointers.
template <class Unit, int Columns, int64_t Row>
MT_HD void product_block(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb,
                         float* c, int64_t ldc, int64_t k, bool accumulate) {
  Vec sum[kRegisterRows][Columns];
#pragma GCC unroll 8
  for (int m = 0; m < kRegisterRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n)
      sum[m][n] = accumulate ? load(c + m * ldc + n * kLanes) : Vec{};
  for (int64_t p = 0; p < k; ++p) {
    typename Unit::Words
        right[Columns];  // loaded once: the compiler cannot prove that they do not change
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) right[n] = Unit::words(b + p * ldb + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRegisterRows; ++m) {
      typename Unit::Word x = a.data[m * (Row != 0 ? Row : a.row) + p * a.step];
#pragma GCC unroll 2
      for (int n = 0; n < Columns; ++n) sum[m][n] = Unit::multiply_add(sum[m][n], x, right[n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRegisterRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) store(c + m * ldc + n * kLanes, sum[m][n]);
}

template <class Unit, int64_t Row>
inline void product_columns(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb,
                            float* c, int64_t ldc, int64_t n, int64_t k, bool accumulate) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    product_block<Unit, 2, Row>(a, b + i, ldb, c + i, ldc, k, accumulate);
  if (i < n) product_block<Unit, 1, Row>(a, b + i, ldb, c + i, ldc, k, accumulate);
}

/// One block of kBlockRows rows: n columns, k units along K.
template <class Unit>
inline void product_rows(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb,
                         float* c, int64_t ldc, int64_t n, int64_t k, bool accumulate) {
  constexpr int64_t kUsual = 64 / Unit::kPack;  // a head of 64 values, or a tile of 64 keys
  if (a.row == 1) return product_columns<Unit, 1>(a, b, ldb, c, ldc, n, k, accumulate);
  if (a.row == kUsual) return product_columns<Unit, kUsual>(a, b, ldb, c, ldc, n, k, accumulate);
  product_columns<Unit, 0>(a, b, ldb, c, ldc, n, k, accumulate);
}

#if defined(__AMX_BF16__)
/// 32 rows of A with `k` words along K in the layout of AMX; transposed words are copied to `to`.
inline AmxRows amx_rows(TileA<uint32_t> a, int64_t k, uint32_t* to) {
  if (a.step == 1) return {a.data, a.row, kAmxWords, 16 * a.row};
  for (int64_t m = 0; m < kAmxRows; m += 16)
    for (int64_t p = 0; p < k; p += kAmxWords) {
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(a.data + m + (p + i) * a.step);
      transpose_words(r);
      uint32_t* tile = to + (m / 16 * k + p) * 16;
      for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(tile + i * kAmxWords, r[i]);
    }
  return {to, kAmxWords, kAmxTile, k * 16};
}

template <>
inline void product_rows<TileUnit>(TileA<uint32_t> a, const uint32_t* b, int64_t ldb, float* c,
                                   int64_t ldc, int64_t n, int64_t k, bool accumulate) {
  constexpr int64_t kMostWords = 32;  // words along K of transposed A: a tile of 64 values
  alignas(64) uint32_t transposed[kAmxRows * kMostWords];
  AmxRows rows = amx_rows(a, k, transposed);
  for (int64_t i = 0; i < n; i += kAmxColumns) {
    if (accumulate)
      load_amx_sums(c + i, ldc);
    else
      zero_amx_sums();
    add_amx_terms(rows, b + i, ldb, k);
    store_amx_sums(c + i, ldc);
  }
}
#endif

}  // namespace mtrain::cpu::MT_ISA
