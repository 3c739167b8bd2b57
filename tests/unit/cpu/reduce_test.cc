#include "kernel_harness.h"

namespace mtrain::testing {

TEST_CASE("column_sum adds up rows, accumulating or not") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t rows : {0, 1, 3, 65, 1000})
      for (int64_t cols : kOddSizes) {
        auto x = Buffer<T>::random(rows * cols, "x");
        std::vector<double> want(static_cast<size_t>(cols));
        for (int64_t i = 0; i < rows * cols; ++i) want[static_cast<size_t>(i % cols)] += x[i];
        for (bool accumulate : {false, true}) {
          Buffer<float> out(cols, accumulate ? 0.5 : 99);
          level.kernels.column_sum(
              *level.stream, {x.data(), out.data(), rows, cols, accumulate, DTypeOf<T>::value});
          check_close(
              out, [&](int64_t c) { return want[static_cast<size_t>(c)] + (accumulate ? 0.5 : 0); },
              "out", 30);
        }
      }
  });
}

TEST_CASE("squared_norm adds up in double") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 2);
    for (int64_t n : {0, 1, 17, 16383, 16384, 16385, 100003}) {
      auto x = Buffer<float>::random(n, "x", 1e-3);
      if (n > 100) x.set(77, 1e25);  // its square overflows float
      double want = 0, got = -1;
      for (int64_t i = 0; i < n; ++i) want += x[i] * x[i];
      level.kernels.squared_norm(*level.stream, {x.data(), n, &got});
      CHECK(got == doctest::Approx(want).epsilon(1e-12));
    }
    Buffer<float> bad(33, 1);
    double got = 0;
    bad.set(32, std::nan(""));
    level.kernels.squared_norm(*level.stream, {bad.data(), 33, &got});
    CHECK(std::isnan(got));
  }
}

}  // namespace mtrain::testing
