// Products in double at every level against sums in long double.
#include "kernel_harness.h"
#include "mtrain/base/text.h"

namespace mtrain::testing {
namespace {

struct Shape3 {
  int64_t m, n, k;
};
constexpr Shape3 kShapes[] = {{1, 1, 1},    {3, 5, 7},     {32, 32, 64}, {33, 31, 65},
                              {17, 8, 129}, {8, 100, 300}, {70, 65, 1},  {4, 9, 0}};

template <class T>
constexpr double kHalfUnit = std::is_same_v<T, double>  ? 0x1p-53
                             : std::is_same_v<T, float> ? 0x1p-24
                                                        : kRounding<T>;

/// C of A, B and a bias in A's type, with and without an addition to what C holds.
template <class A, class B, class C>
void check_product(Level& level, const Shape3& s, bool ta, bool tb, bool accumulate) {
  INFO(level.isa, " ", s.m, "x", s.n, "x", s.k, ta ? " At" : "", tb ? " Bt" : "",
       accumulate ? " added" : "");
  auto a = Buffer<A>::random(s.m * s.k, "a");
  auto b = Buffer<B>::random(s.k * s.n, "b");
  auto bias = Buffer<A>::random(s.n, "bias");
  auto c = Buffer<C>::random(s.m * s.n, "c");
  const Buffer<C> before = c;
  for (int64_t i = 0; !accumulate && i < c.count(); ++i) c.set(i, std::nan(""));
  level.kernels.double_gemm(*level.stream, {.a = a.data(),
                                            .b = b.data(),
                                            .c = c.data(),
                                            .bias = bias.data(),
                                            .transpose_a = ta,
                                            .transpose_b = tb,
                                            .accumulate = accumulate,
                                            .m = s.m,
                                            .n = s.n,
                                            .k = s.k,
                                            .a_dtype = DTypeOf<A>::value,
                                            .b_dtype = DTypeOf<B>::value,
                                            .c_dtype = DTypeOf<C>::value,
                                            .bias_dtype = DTypeOf<A>::value});
  double worst = 0;
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      long double sum = bias[j], size = std::fabs(bias[j]);
      for (int64_t k = 0; k < s.k; ++k) {
        const long double term = static_cast<long double>(a[ta ? k * s.m + i : i * s.k + k]) *
                                 static_cast<long double>(b[tb ? j * s.k + k : k * s.n + j]);
        sum += term, size += std::fabs(term);
      }
      if (accumulate) sum += before[i * s.n + j], size += std::fabs(before[i * s.n + j]);
      const double want = static_cast<double>(sum),
                   allowed = 1.01 * kHalfUnit<C> * std::fabs(want) +
                             0x1p-53 * static_cast<double>(s.k + 3) * static_cast<double>(size);
      const double share = std::fabs(c[i * s.n + j] - want) / allowed;
      worst = std::isnan(share) ? INFINITY : std::max(worst, share);
    }
  CHECK(worst <= 1);
}

TEST_CASE("double_gemm: sums in double of every type, layout and size") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 2);
    for (const Shape3& s : kShapes)
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          for (bool accumulate : {false, true}) {
            check_product<float, float, double>(level, s, ta, tb, accumulate);
            check_product<bf16, bf16, double>(level, s, ta, tb, accumulate);
            check_product<double, f16, float>(level, s, ta, tb, accumulate);
            check_product<double, bf16, bf16>(level, s, ta, tb, accumulate);
            check_product<f16, double, f16>(level, s, ta, tb, accumulate);
          }
  }
}

TEST_CASE("double_gemm: a number that is not finite stays in its row") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 2);
    auto a = Buffer<float>::random(5 * 40, "a"), b = Buffer<float>::random(40 * 7, "b");
    a.set(2 * 40 + 39, std::nan(""));
    Buffer<double> c(5 * 7);
    level.kernels.double_gemm(
        *level.stream, {.a = a.data(), .b = b.data(), .c = c.data(), .m = 5, .n = 7, .k = 40});
    for (int64_t i = 0; i < c.count(); ++i) CHECK(std::isnan(c[i]) == (i / 7 == 2));
  }
}

}  // namespace
}  // namespace mtrain::testing
