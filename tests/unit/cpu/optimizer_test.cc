#include "kernel_harness.h"

namespace mtrain::testing {

TEST_CASE("adamw matches the formula and writes the compute copy") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t n : {0, 1, 3, 17, 33, 65, 129, 20000})
      for (bool copy : {true, false}) {
        auto param = Buffer<float>::random(n, "param"), grad = Buffer<float>::random(n, "grad"),
             m = Buffer<float>::random(n, "m", 0.1), v = Buffer<float>::random(n, "v", 0.1);
        for (int64_t i = 0; i < n; ++i) v.set(i, std::fabs(v[i]));
        Buffer<float> p0(param), m0(m), v0(v);
        Buffer<T> value(n, 99);
        AdamWArgs a{param.data(),
                    grad.data(),
                    m.data(),
                    v.data(),
                    copy ? value.data() : nullptr,
                    n,
                    1e-2f,
                    0.9f,
                    0.95f,
                    1e-8f,
                    0.1f,
                    0.271f,
                    0.142625f,
                    0.5f,
                    DTypeOf<T>::value};
        level.kernels.adamw(*level.stream, a);
        auto want_m = [&](int64_t i) { return 0.9f * m0[i] + (1 - 0.9f) * grad[i] * 0.5; };
        auto want_v = [&](int64_t i) {
          return 0.95f * v0[i] + (1 - 0.95f) * grad[i] * grad[i] * 0.25;
        };
        auto want_p = [&](int64_t i) {
          return p0[i] - 1e-2 * (want_m(i) / 0.271 / (std::sqrt(want_v(i) / 0.142625) + 1e-8) +
                                 0.1 * p0[i]);
        };
        check_close(m, want_m, "m");
        check_close(v, want_v, "v");
        check_close(param, want_p, "param");
        if (copy)
          for (int64_t i = 0; i < n; ++i) REQUIRE(value[i] == to_double(T(param.data()[i])));
        else if (n > 0)
          CHECK(value[0] == to_double(T(99.0f)));
      }
  });
}

TEST_CASE("adamw: a NaN gradient stays in its own element") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    Buffer<float> param(33, 1), grad(33, 1), m(33), v(33);
    Buffer<T> value(33);
    grad.set(20, std::nan(""));
    level.kernels.adamw(
        *level.stream, {param.data(), grad.data(), m.data(), v.data(), value.data(), 33, 0.1f, 0.9f,
                        0.99f, 1e-8f, 0, 0.1f, 0.01f, 1, DTypeOf<T>::value});
    for (int64_t i = 0; i < 33; ++i) CHECK(std::isnan(param[i]) == (i == 20));
  });
}

}  // namespace mtrain::testing
