// Small products of tiles that live in the first cache levels: C[M, N] (+)= A[M, K] · B[K, N], C in float.
// The terms are walked in 32-bit units: one float, or a pair of neighbouring bf16 values where the CPU
// multiplies such pairs. B and C are row-major with N a multiple of the vector length; A may be walked in
// either direction, so that its transpose needs no copy.
#pragma once
#include "mtrain/cpu/kernels/vec.h"

namespace mtrain::cpu::MT_ISA {

/// One unit is one float.
struct FloatUnit {
  static constexpr int kPack = 1;
  using Word = float;
  using Words = Vec;  // a vector of them
  static MT_HD Words words(const Word* from) { return load(from); }
  static MT_HD Vec multiply_add(Vec sum, Word a, Words b) { return sum + a * b; }
};

#if defined(__AVX512BF16__)
/// One unit is two bf16 values, the earlier in the low half. Products and sums are in float.
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

/// bf16 goes through pair products where the CPU has them; everything else is converted to float.
template <class T>
struct UnitOf {
  using Type = FloatUnit;
};
#if defined(__AVX512BF16__)
template <>
struct UnitOf<bf16> {
  using Type = PairUnit;
};
#endif

/// Rows that one block keeps in registers (beside two vectors of columns); M must be a multiple of it.
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;

/// A's unit (m, k) is at data[m * row + k * step].
template <class Word>
struct TileA {
  const Word* data;
  int64_t row, step;
};

/// `Row`: a.row where it is known to the compiler, else 0. Eight rows at a distance that is not known take eight pointers.
template <class Unit, int Columns, int64_t Row>
MT_HD void product_block(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb, float* c,
                         int64_t ldc, int64_t k, bool accumulate) {
  Vec sum[kBlockRows][Columns];
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) sum[m][n] = accumulate ? load(c + m * ldc + n * kLanes) : Vec{};
  for (int64_t p = 0; p < k; ++p) {
    typename Unit::Words right[Columns];  // loaded once: the compiler does not see that they stay the same
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) right[n] = Unit::words(b + p * ldb + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kBlockRows; ++m) {
      typename Unit::Word x = a.data[m * (Row != 0 ? Row : a.row) + p * a.step];
#pragma GCC unroll 2
      for (int n = 0; n < Columns; ++n)
        sum[m][n] = Unit::multiply_add(sum[m][n], x, right[n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) store(c + m * ldc + n * kLanes, sum[m][n]);
}

template <class Unit, int64_t Row>
inline void product_columns(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb, float* c,
                            int64_t ldc, int64_t n, int64_t k, bool accumulate) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    product_block<Unit, 2, Row>(a, b + i, ldb, c + i, ldc, k, accumulate);
  if (i < n) product_block<Unit, 1, Row>(a, b + i, ldb, c + i, ldc, k, accumulate);
}

/// One block of kBlockRows rows: n columns (a multiple of kLanes), k units.
template <class Unit>
inline void product_rows(TileA<typename Unit::Word> a, const typename Unit::Word* b, int64_t ldb, float* c,
                         int64_t ldc, int64_t n, int64_t k, bool accumulate) {
  constexpr int64_t kUsual = 64 / Unit::kPack;  // a head of 64 values, a tile of 64 keys
  if (a.row == 1) return product_columns<Unit, 1>(a, b, ldb, c, ldc, n, k, accumulate);
  if (a.row == kUsual) return product_columns<Unit, kUsual>(a, b, ldb, c, ldc, n, k, accumulate);
  product_columns<Unit, 0>(a, b, ldb, c, ldc, n, k, accumulate);
}

}  // namespace mtrain::cpu::MT_ISA
