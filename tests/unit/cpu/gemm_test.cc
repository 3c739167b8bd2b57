#include "mtrain/cpu/gemm.h"

#include <map>
#include <numeric>
#include <vector>

#include "kernel_harness.h"
#include "mtrain/base/text.h"
#include "mtrain/cpu/cpu_stream.h"

namespace mtrain::testing {
namespace {

struct GemmCase {
  int64_t m, n, k;
  bool ta = false, tb = false;
  int64_t pad = 0, batch = 1;
  float alpha = 1, beta = 0;
  bool bias = false, addend = false;
};

std::string text(const GemmCase& c) {
  return cat(c.m, "x", c.n, "x", c.k, c.ta ? " At" : "", c.tb ? " Bt" : "", " pad ", c.pad,
             " batch ", c.batch, " alpha ", c.alpha, " beta ", c.beta, c.bias ? " bias" : "",
             c.addend ? " addend" : "");
}

/// One matrix of a batch as rows of `terms` doubles, the terms of a sum side by side: element (r,
/// p) lies at `offset + r * row + p * term`. Sums over them take a fraction of the time that
/// reading each value anew takes.
template <class T>
std::vector<double> widened(const Buffer<T>& x, int64_t offset, int64_t rows, int64_t row,
                            int64_t terms, int64_t term) {
  std::vector<double> out(static_cast<size_t>(rows * terms));
  double* to = out.data();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t p = 0; p < terms; ++p) *to++ = x[offset + r * row + p * term];
  return out;
}

/// The sums of products, in doubles: batch x m x n. Kept, since every level and type of the result
/// compares with the same ones: inputs of the same type and shape are the same numbers.
template <class T>
const std::vector<double>& exact_products(const GemmCase& c, const GemmArgs& g, const Buffer<T>& a,
                                          const Buffer<T>& b) {
  static std::map<std::vector<int64_t>, std::vector<double>> known;
  auto [at, is_new] = known.try_emplace({c.m, c.n, c.k, c.ta, c.tb, c.pad, c.batch});
  std::vector<double>& out = at->second;
  if (!is_new) return out;
  for (int64_t z = 0; z < c.batch; ++z) {
    auto rows = widened(a, z * g.stride_a, c.m, c.ta ? 1 : g.lda, c.k, c.ta ? g.lda : 1);
    auto columns = widened(b, z * g.stride_b, c.n, c.tb ? g.ldb : 1, c.k, c.tb ? 1 : g.ldb);
    for (int64_t r = 0; r < c.m; ++r)
      for (int64_t j = 0; j < c.n; ++j)
        out.push_back(std::inner_product(rows.data() + r * c.k, rows.data() + (r + 1) * c.k,
                                         columns.data() + j * c.k, 0.0));
  }
  return out;
}

/// Runs one case and compares each element with a double sum; padding between rows must stay
/// untouched. `packed`: by the level's own kernel, where it has one.
template <class T, class C, class B>
void check_gemm(Level& level, const GemmCase& c, bool packed = false) {
  std::string what = cat(text(c), " ", name(DTypeOf<T>::value), " to ", name(DTypeOf<C>::value));
  INFO(what);
  int64_t a_rows = c.ta ? c.k : c.m, a_cols = c.ta ? c.m : c.k, b_rows = c.tb ? c.n : c.k,
          b_cols = c.tb ? c.k : c.n;
  int64_t lda = a_cols + c.pad, ldb = b_cols + 2 * c.pad, ldc = c.n + 3 * c.pad;
  int64_t sa = a_rows * lda + c.pad, sb = b_rows * ldb, sc = c.m * ldc + c.pad;
  auto a = Buffer<T>::random(sa * c.batch, "a"), b = Buffer<T>::random(sb * c.batch, "b");
  auto out = Buffer<C>::random(sc * c.batch, "c");
  auto bias = Buffer<B>::random(c.n, "bias");
  auto addend = Buffer<C>::random(sc, "addend");
  Buffer<C> before(out);
  if (c.beta == 0)
    for (int64_t i = 0; i < out.count(); ++i)
      if (i % sc / ldc < c.m && i % sc % ldc < c.n) out.set(i, std::nan(""));  // must not be read
  GemmArgs g;
  g.a = a.data(), g.b = b.data(), g.c = out.data(), g.bias = c.bias ? bias.data() : nullptr;
  g.transpose_a = c.ta, g.transpose_b = c.tb, g.m = c.m, g.n = c.n, g.k = c.k, g.lda = lda,
  g.ldb = ldb, g.ldc = ldc;
  if (c.addend) g.addend = addend.data();
  g.batch = c.batch, g.stride_a = sa, g.stride_b = sb, g.stride_c = sc, g.alpha = c.alpha,
  g.beta = c.beta;
  g.dtype = DTypeOf<T>::value, g.c_dtype = DTypeOf<C>::value, g.bias_dtype = DTypeOf<B>::value;
  if (!packed)
    level.kernels.gemm(*level.stream, g);
  else
    cpu::cpu_stream(*level.stream).isa().packed_gemm(*level.stream, g);
  // Partial sums grow with the root of their number, and so do the roundings that add up in one
  // chain of them.
  auto terms = static_cast<double>(c.k);
  double scale = std::max(std::sqrt(terms) + 1, terms / 32);
  const std::vector<double>& products = exact_products(c, g, a, b);
  check_close(
      out,
      [&](int64_t i) {
        int64_t z = i / sc, r = i % sc / ldc, col = i % sc % ldc;
        if (r >= c.m || col >= c.n) return before[i];
        double sum = products[static_cast<size_t>((z * c.m + r) * c.n + col)];
        return c.alpha * sum + (c.beta == 0 ? 0 : c.beta * before[i]) + (c.bias ? bias[col] : 0) +
               (c.addend ? addend[i] : 0);
      },
      what, scale);
}

}  // namespace

TEST_CASE("gemm matches the definition for every type, layout and odd shape") {
  std::vector<GemmCase> cases;
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      for (int64_t m : {1, 3, 33})
        for (int64_t n : {1, 17, 65})
          for (int64_t k : {1, 3, 129}) cases.push_back({m, n, k, ta, tb, 0, 1, 1, 0, false});
      cases.push_back({65, 33, 17, ta, tb, 0, 1, 1, 1, false});
      cases.push_back({65, 33, 17, ta, tb, 0, 1, 0.5, 0, false});
      cases.push_back({5, 7, 9, ta, tb, 0, 3, 1, 0, false});
      cases.push_back({33, 17, 65, ta, tb, 0, 2, 1, 1, false});
    }
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (const GemmCase& c : cases) {
      check_gemm<T, T, T>(level, c);
      check_gemm<T, float, T>(level, c);
    }
  });
}

TEST_CASE("the packed kernel: several panels, chunks of terms, blocks of rows and odd ends") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    auto check = [&](const GemmCase& c) {
      check_gemm<T, T, T>(level, c, true);
      check_gemm<T, float, float>(level, c, true);
    };
    for (auto [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}, {true, true}})
      for (float beta : {0.0f, 1.0f, 0.5f}) {
        bool bias = beta != 1;
        check({61, 83, 110, ta, tb, 0, 1, 1, beta, bias});
        check({59, 97, 66, ta, tb, 2, 1, 1, beta, bias});  // strides larger than the widths
        check({55, 33, 67, ta, tb, 1, 1, 1, beta, bias});  // odd in everything
        check({1, 1, 2, ta, tb, 0, 1, 1, beta, bias});
        check({26, 34, 2048, ta, tb, 0, 1, 1, beta, bias});  // few rows, a power of two apart
        check({29, 35, 8210, ta, tb, 0, 1, 1, beta, bias});  // several chunks
      }
    for (auto [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}}) {
      // More panels than are packed at a time, several blocks of rows and chunks; chunks of rows a
      // power of two apart.
      check({200, 3100, 520, ta, tb, 0, 1, 1, 0.5, true});
      check_gemm<T, T, T>(level, {50, 801, 4100, ta, tb, 0, 1, 1, 0.5, true}, true);
      check_gemm<T, T, T>(level, {50, 33, 8192, ta, tb, 0, 1, 1, 1, false}, true);
    }
  });
}

TEST_CASE("the packed kernel: few rows, and ends of pairs") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (auto [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}, {true, true}})
      for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 9})
        for (auto [n, k] : {std::pair{37, 83}, {1, 1}, {16, 64}}) {
          check_gemm<T, T, T>(level, {m, n, k, ta, tb, 1, 1, 0.5, 0.5, true}, true);
          check_gemm<T, float, T>(level, {m, n, k, ta, tb, 0, 1, 1, 0, false, true}, true);
        }
    for (auto [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}, {true, true}})
      check_gemm<T, T, T>(level, {70, 65, 4099, ta, tb, 3, 1, 1, 1, false},
                          true);  // an odd end after whole chunks
  });
}

TEST_CASE("every 16-bit float is converted as by its type, on the way in and out") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    if constexpr (!std::is_same_v<T, float>) {
      // A column of all values times 1, and of floats between their neighbours.
      constexpr int64_t kCount = 65536;
      std::vector<T> halves(kCount);
      std::vector<float> floats(kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        halves[static_cast<size_t>(i)].bits = static_cast<uint16_t>(i);
        uint32_t bits =
            static_cast<uint32_t>(i) * 0x10001u ^ 0x8000u;  // all exponents, ties and near ties
        std::memcpy(&floats[static_cast<size_t>(i)], &bits, sizeof bits);
      }
      bool flushes = std::is_same_v<T, bf16> && (level.isa == "v4_bf16" || level.isa == "v4_amx");
      auto same = [&](float got, float want) {
        if (std::isnan(want)) return std::isnan(got);
        return got == want || (flushes && std::fabs(want) <= 0x1p-126f && got == 0);
      };
      T one(1.0f);
      float float_one = 1, wrong = 0;
      std::vector<float> wide(kCount);
      std::vector<T> narrow(kCount);
      GemmArgs g;
      g.m = kCount, g.n = g.k = g.lda = g.ldb = g.ldc = 1;
      g.a = halves.data(), g.b = &one, g.c = wide.data(), g.dtype = DTypeOf<T>::value;
      level.kernels.gemm(*level.stream, g);
      for (size_t i = 0; i < kCount; ++i) wrong += !same(wide[i], static_cast<float>(halves[i]));
      CHECK(wrong == 0);
      g.a = floats.data(), g.b = &float_one, g.c = narrow.data(), g.dtype = DType::f32,
      g.c_dtype = DTypeOf<T>::value;
      level.kernels.gemm(*level.stream, g);
      for (size_t i = 0; i < kCount; ++i)
        wrong += !same(static_cast<float>(narrow[i]), static_cast<float>(T(floats[i])));
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("sums over earlier chunks are kept for some rows at a time") {
  // More rows than one pass takes. A row of A is its number modulo 8 in its first and last term.
  int64_t m = 5600, n = 3080, k = 514;
  Level level(cpu::usable_isas().front(), 2);
  std::vector<f16> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k)),
      c(static_cast<size_t>(m * n));
  auto fill_ends = [k](std::vector<f16>& x, int64_t rows, int64_t modulus) {
    for (int64_t r = 0; r < rows; ++r)
      x[static_cast<size_t>(r * k)] = x[static_cast<size_t>(r * k + k - 1)] =
          f16(static_cast<float>(r % modulus));
  };
  fill_ends(a, m, 8);
  fill_ends(b, n, 4);
  GemmArgs g;
  g.a = a.data(), g.b = b.data(), g.c = c.data(), g.transpose_b = true, g.m = m, g.n = g.ldc = n,
  g.k = g.lda = g.ldb = k;
  g.dtype = g.c_dtype = DType::f16;
  level.kernels.gemm(*level.stream, g);
  int64_t wrong = 0;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t j = 0; j < n; ++j)
      wrong += static_cast<float>(c[static_cast<size_t>(r * n + j)]) !=
               static_cast<float>(2 * (r % 8) * (j % 4));
  CHECK(wrong == 0);
}

TEST_CASE("gemm adds another matrix as it stores, or as well without a product") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    auto check = [&](const GemmCase& c) {
      if (c.k > 0) check_gemm<T, T, T>(level, c, true);
      if (c.k > 0) check_gemm<T, float, T>(level, c, true);
      check_gemm<T, T, T>(level, c);
      check_gemm<T, float, T>(level, c);
    };
    for (bool bias : {false, true}) {
      check({61, 83, 110, false, true, 0, 1, 1, 0, bias, true});
      check({59, 97, 66, false, false, 2, 1, 1, 0, bias, true});
      check({29, 35, 8210, false, true, 0, 1, 1, 0, bias, true});
      check({13, 35, 0, false, true, 0, 1, 1, 0, bias, true});
    }
  });
}

TEST_CASE("the packed kernel passes NaN and infinity on") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    int64_t m = 34, n = 97, k = 66;
    auto a = Buffer<T>::random(m * k, "a"), b = Buffer<T>::random(k * n, "b");
    a.set(5 * k + 3, std::nan(""));
    b.set(7 * n + 30, HUGE_VAL);
    Buffer<T> c(m * n);
    GemmArgs g;
    g.a = a.data(), g.b = b.data(), g.c = c.data(), g.m = m, g.n = n, g.k = k, g.lda = k,
    g.ldb = g.ldc = n;
    g.dtype = g.c_dtype = DTypeOf<T>::value;
    cpu::cpu_stream(*level.stream).isa().packed_gemm(*level.stream, g);
    for (int64_t j = 0; j < n; ++j) CHECK(std::isnan(c[5 * n + j]));
    for (int64_t i = 0; i < m; ++i) CHECK_FALSE(std::isfinite(c[i * n + 30]));
    CHECK(std::isfinite(c[0]));
  });
}

TEST_CASE("gemm adds a bias of any type, with and without a factor") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (float alpha : {1.0f, 0.25f})
      for (float beta : {0.0f, 1.0f}) {
        GemmCase c{33, 17, 65, false, true, 0, 1, alpha, beta, true};
        check_gemm<T, T, T>(level, c);
        check_gemm<T, T, float>(level, c);
        check_gemm<T, float, T>(level, c);
        c.batch = 2;
        check_gemm<T, T, T>(level, c);
      }
  });
}

TEST_CASE("gemm without a product scales C and adds the bias") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (float beta : {0.0f, 1.0f, 0.5f})
      for (bool bias : {false, true}) {
        check_gemm<T, T, T>(level, {3, 17, 0, false, false, 0, 2, 1, beta, bias});
        check_gemm<T, float, T>(level, {3, 17, 5, false, false, 0, 1, 0, beta, bias});
      }
    check_gemm<T, T, T>(level, {0, 17, 5});
    check_gemm<T, T, T>(level, {3, 0, 5});
  });
}

TEST_CASE("gemm honours row strides and leaves the padding alone") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (int64_t m : {1, 17, 65})
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          GemmCase c{m, 33, 17, ta, tb, 5, 1, 1, 1, false};
          check_gemm<T, T, T>(level, c);
          check_gemm<T, float, T>(level, c);
          c.batch = 3;
          check_gemm<T, T, T>(level, c);
        }
    check_gemm<T, T, T>(
        level, {1100, 9, 8, false, true, 3, 1, 1, 1, true});  // more than one panel of rows
    check_gemm<T, T, T>(level, {1100, 9, 8, true, false, 3, 1, 1, 1, true});
    for (bool tb : {false, true}) {  // more terms than one call takes
      check_gemm<T, T, T>(level, {5, 7, 2100, true, tb, 3, 2, 1, 1, false});
      check_gemm<T, float, T>(level, {5, 7, 2100, true, tb, 3, 1, 0.5, 0.5, true});
      check_gemm<T, float, T>(level, {5, 7, 2048, true, tb, 0, 3, 1, 0, false});
    }
  });
}

TEST_CASE("gemm passes NaN and infinity on") {
  each_level_and_dtype([&]<class T>(T, Level& level) {
    int64_t n = 33;
    auto a = Buffer<T>::random(n * n, "a"), b = Buffer<T>::random(n * n, "b");
    a.set(5 * n + 3, std::nan(""));
    b.set(7 * n + 30, HUGE_VAL);
    Buffer<T> c(n * n);
    GemmArgs g;
    g.a = a.data(), g.b = b.data(), g.c = c.data(), g.m = g.n = g.k = g.lda = g.ldb = g.ldc = n;
    g.dtype = g.c_dtype = DTypeOf<T>::value;
    level.kernels.gemm(*level.stream, g);
    for (int64_t j = 0; j < n; ++j) CHECK(std::isnan(c[5 * n + j]));
    CHECK(std::isinf(c[30]));
    CHECK(std::isfinite(c[0]));
  });
}

}  // namespace mtrain::testing
