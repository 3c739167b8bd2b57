#include "kernel_harness.h"

namespace mtrain::testing {
namespace {

const std::vector<int64_t> kCounts = {0, 1, 3, 17, 33, 65, 129, 1000, 16384, 40001};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(double x, GeluKind kind) {
  if (kind == GeluKind::erf) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
template <class F>
double slope(F&& f, double x) {
  double h = 1e-4;
  return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h);
}

}  // namespace

TEST_CASE("silu_mul and its gradients match the formula") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t n : kCounts) {
      auto gate = Buffer<T>::random(n, "gate", 3), up = Buffer<T>::random(n, "up"),
           dy = Buffer<T>::random(n, "dy");
      Buffer<T> y(n, 99), d_gate(n, 99), d_up(n, 99);
      level.kernels.silu_mul(*level.stream,
                             {gate.data(), up.data(), y.data(), n, DTypeOf<T>::value});
      check_close(
          y, [&](int64_t i) { return gate[i] * sigmoid(gate[i]) * up[i]; }, "y");
      level.kernels.silu_mul_backward(
          *level.stream,
          {dy.data(), gate.data(), up.data(), d_gate.data(), d_up.data(), n, DTypeOf<T>::value});
      check_close(
          d_up, [&](int64_t i) { return dy[i] * gate[i] * sigmoid(gate[i]); }, "d_up");
      check_close(
          d_gate,
          [&](int64_t i) {
            return dy[i] * up[i] * slope([](double x) { return x * sigmoid(x); }, gate[i]);
          },
          "d_gate");
    }
  });
}

TEST_CASE("gelu and its gradient match the formula in both forms") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (GeluKind kind : {GeluKind::erf, GeluKind::tanh})
      for (int64_t n : kCounts) {
        auto x = Buffer<T>::random(n, "x", 3), dy = Buffer<T>::random(n, "dy");
        Buffer<T> y(n, 99);
        level.kernels.gelu(*level.stream, {x.data(), y.data(), n, kind, DTypeOf<T>::value});
        check_close(
            y, [&](int64_t i) { return gelu(x[i], kind); }, "y");
        for (bool accumulate : {false, true}) {
          Buffer<T> dx(n, accumulate ? 0.5 : 99);
          level.kernels.gelu_backward(*level.stream, {dy.data(), x.data(), dx.data(), n, kind,
                                                      accumulate, DTypeOf<T>::value});
          check_close(
              dx,
              [&](int64_t i) {
                return dy[i] * slope([&](double v) { return gelu(v, kind); }, x[i]) +
                       (accumulate ? 0.5 : 0);
              },
              "dx", 0.5);
        }
      }
  });
}

TEST_CASE("activations at extreme values, NaN and infinity") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    Buffer<T> x(5), one(5, 1), y(5);
    x.set(0, std::nan("")), x.set(1, HUGE_VAL), x.set(2, 6e4), x.set(3, -6e4), x.set(4, 0);
    level.kernels.silu_mul(*level.stream, {x.data(), one.data(), y.data(), 5, DTypeOf<T>::value});
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == HUGE_VAL);
    CHECK(y[2] == x[2]);
    CHECK(y[3] == 0);
    CHECK(y[4] == 0);
    for (GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
      level.kernels.gelu(*level.stream, {x.data(), y.data(), 5, kind, DTypeOf<T>::value});
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == HUGE_VAL);
      CHECK(y[2] == x[2]);
      CHECK(y[3] == 0);
      CHECK(y[4] == 0);
    }
    level.kernels.add(*level.stream, {x.data(), one.data(), y.data(), 5, DTypeOf<T>::value});
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == HUGE_VAL);
  });
}

TEST_CASE("relu at extreme values, NaN and infinity, and its gradient at zero") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    Buffer<T> x(5), one(5, 1), y(5);
    x.set(0, std::nan("")), x.set(1, HUGE_VAL), x.set(2, 3), x.set(3, -HUGE_VAL), x.set(4, 0);
    for (ReluKind kind : {ReluKind::plain, ReluKind::squared}) {
      level.kernels.relu(*level.stream, {x.data(), y.data(), 5, kind, DTypeOf<T>::value});
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == HUGE_VAL);
      CHECK(y[2] == (kind == ReluKind::plain ? 3 : 9));
      CHECK(y[3] == 0);
      CHECK(y[4] == 0);
      level.kernels.relu_backward(
          *level.stream, {one.data(), x.data(), y.data(), 5, kind, false, DTypeOf<T>::value});
      CHECK(y[2] == (kind == ReluKind::plain ? 1 : 6));
      CHECK(y[3] == 0);
      CHECK(y[4] == 0);
    }
  });
}

TEST_CASE("mul, in place too") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t n : kCounts) {
      auto a = Buffer<T>::random(n, "a"), b = Buffer<T>::random(n, "b");
      Buffer<T> y(n, 99), in_place(a);
      level.kernels.mul(*level.stream, {a.data(), b.data(), y.data(), n, DTypeOf<T>::value});
      level.kernels.mul(*level.stream,
                        {in_place.data(), b.data(), in_place.data(), n, DTypeOf<T>::value});
      check_close(
          y, [&](int64_t i) { return a[i] * b[i]; }, "y");
      CHECK(in_place.same_bits(y));
    }
  });
}

TEST_CASE("unary: each function of the shifted number, its limits and NaN") {
  auto value = [](UnaryKind kind, double x) {
    switch (kind) {
      case UnaryKind::sigmoid:
        return sigmoid(x);
      case UnaryKind::rsqrt:
        return 1 / std::sqrt(x);
      case UnaryKind::normal_cdf:
        return 0.5 * std::erfc(-x / std::sqrt(2.0));
      default:
        return std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    }
  };
  struct Row {
    UnaryKind kind;
    float shift;
    double at_infinity;
  };
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (Row row : {Row{UnaryKind::sigmoid, 0, 1},
                    {UnaryKind::rsqrt, 0.5f, 0},
                    {UnaryKind::normal_cdf, -0.25f, 1},
                    {UnaryKind::normal_pdf, 0, 0}}) {
      for (int64_t n : kCounts) {
        auto x = Buffer<T>::random(n, "x", 3);
        if (row.kind == UnaryKind::rsqrt)
          for (int64_t i = 0; i < n; ++i) x.set(i, std::fabs(x[i]));
        Buffer<T> y(n, 99);
        level.kernels.unary(*level.stream,
                            {x.data(), y.data(), n, row.kind, row.shift, DTypeOf<T>::value});
        check_close(
            y, [&](int64_t i) { return value(row.kind, x[i] + row.shift); }, "y");
      }
      Buffer<T> x(2), y(2);
      x.set(0, std::nan("")), x.set(1, HUGE_VAL);
      level.kernels.unary(*level.stream, {x.data(), y.data(), 2, row.kind, 0, DTypeOf<T>::value});
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == row.at_infinity);
    }
  });
}

TEST_CASE("add, in place too") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t n : kCounts) {
      auto a = Buffer<T>::random(n, "a"), b = Buffer<T>::random(n, "b");
      Buffer<T> y(n, 99), in_place(a);
      level.kernels.add(*level.stream, {a.data(), b.data(), y.data(), n, DTypeOf<T>::value});
      level.kernels.add(*level.stream,
                        {in_place.data(), b.data(), in_place.data(), n, DTypeOf<T>::value});
      check_close(
          y, [&](int64_t i) { return a[i] + b[i]; }, "y");
      CHECK(in_place.same_bits(y));
    }
  });
}

template <class S, class D>
void check_cast(Level& level) {
  for (int64_t n : kCounts) {
    auto src = Buffer<S>::random(n, "src");
    for (float scale : {1.0f, 0.375f})
      for (bool accumulate : {false, true}) {
        Buffer<D> dst(n, accumulate ? 0.25 : 99);
        level.kernels.cast(*level.stream, {src.data(), dst.data(), n, scale, accumulate,
                                           DTypeOf<S>::value, DTypeOf<D>::value});
        bool exact = true;  // known to the bit, with or without a fused multiply-add
        for (int64_t i = 0; i < n; ++i) {
          float v = static_cast<float>(src[i]);
          double fused = to_double(D(accumulate ? std::fma(scale, v, 0.25f) : scale * v));
          double plain = to_double(D(accumulate ? scale * v + 0.25f : scale * v));
          exact = exact && (dst[i] == fused || dst[i] == plain);
        }
        CHECK(exact);
      }
  }
  Buffer<S> src(3);
  Buffer<D> dst(3);
  src.set(0, std::nan("")), src.set(1, HUGE_VAL), src.set(2, -HUGE_VAL);
  level.kernels.cast(*level.stream,
                     {src.data(), dst.data(), 3, 1, false, DTypeOf<S>::value, DTypeOf<D>::value});
  CHECK(std::isnan(dst[0]));
  CHECK(dst[1] == HUGE_VAL);
  CHECK(dst[2] == -HUGE_VAL);
}

TEST_CASE("cast converts between all pairs of types") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    check_cast<T, float>(level);
    check_cast<T, bf16>(level);
    check_cast<T, f16>(level);
  });
}

TEST_CASE(
    "cast agrees with the scalar conversion on every 16-bit value and near every rounding "
    "boundary") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 2);
    Buffer<f16> halves(65536), back16(65536);
    Buffer<bf16> brains(65536), back_b(65536);
    Buffer<float> wide(65536), wide_b(65536);
    for (int64_t i = 0; i < 65536; ++i) {
      halves.data()[i].bits = static_cast<uint16_t>(i);
      brains.data()[i].bits = static_cast<uint16_t>(i);
    }
    auto cast = [&](const void* from, DType f, void* to, DType t) {
      level.kernels.cast(*level.stream, {from, to, 65536, 1, false, f, t});
    };
    cast(halves.data(), DType::f16, wide.data(), DType::f32);
    cast(brains.data(), DType::bf16, wide_b.data(), DType::f32);
    cast(wide.data(), DType::f32, back16.data(), DType::f16);
    cast(wide_b.data(), DType::f32, back_b.data(), DType::bf16);
    int bad = 0;
    for (int64_t i = 0; i < 65536; ++i) {
      float h = to_float(halves.data()[i]), b = to_float(brains.data()[i]);
      bad += std::isnan(h) ? !std::isnan(wide[i]) || !std::isnan(back16[i])
                           : wide.data()[i] != h || back16.data()[i].bits != halves.data()[i].bits;
      bad += std::isnan(b)
                 ? !std::isnan(wide_b[i]) || !std::isnan(back_b[i])
                 : wide_b.data()[i] != b || back_b.data()[i].bits != brains.data()[i].bits;
    }
    CHECK(bad == 0);
    for (int64_t i = 0; i < 65536; ++i)  // every half's neighbourhood: ties, just below, just above
      wide.data()[i] =
          std::nextafter(to_float(halves.data()[i]) * 1.00048828125f, i % 2 ? 1e30f : -1e30f);
    cast(wide.data(), DType::f32, back16.data(), DType::f16);
    cast(wide.data(), DType::f32, back_b.data(), DType::bf16);
    bad = 0;
    for (int64_t i = 0; i < 65536; ++i)
      if (!std::isnan(wide[i]))
        bad += back16.data()[i].bits != f16(wide.data()[i]).bits ||
               back_b.data()[i].bits != bf16(wide.data()[i]).bits;
    CHECK(bad == 0);
  }
}

TEST_CASE("copy_blocks moves or adds each block and leaves the rest alone") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    constexpr int64_t kOuter = 5, kInner = 3, kCount = 70, kStep = 77,
                      kSize = kOuter * kInner * kStep;
    auto x = Buffer<T>::random(kSize, "x");
    for (bool accumulate : {false, true}) {
      Buffer<T> y(kSize, 0.5);
      level.kernels.copy_blocks(
          *level.stream, {x.data(), y.data(), kOuter, kInner, kCount, kInner * kStep, kStep, kStep,
                          kOuter * kStep, accumulate, DTypeOf<T>::value});
      check_close(
          y,
          [&](int64_t at) {
            int64_t block = at / kStep, e = at % kStep, j = block / kOuter, i = block % kOuter;
            if (e >= kCount) return 0.5;
            return x[i * kInner * kStep + j * kStep + e] + (accumulate ? 0.5 : 0.0);
          },
          "blocks");
    }
  });
}

TEST_CASE("dropout keeps what the named random stream says, by global index") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t n : kCounts)
      for (int64_t first : {int64_t{0}, (int64_t{1} << 32) - 10}) {
        auto x = Buffer<T>::random(n, "x");
        Buffer<T> y(n, 99);
        float p = 0.3f;
        uint64_t key = name_key("mlp.dropout");
        level.kernels.dropout(*level.stream,
                              {x.data(), y.data(), n, first, 5, key, 12, p, DTypeOf<T>::value});
        RngStream rng(5, key, 12);
        check_close(
            y,
            [&](int64_t i) {
              return rng.uniform(static_cast<uint64_t>(first + i)) >= p
                         ? x[i] / (1 - static_cast<double>(p))
                         : 0;
            },
            "y");
      }
    auto x = Buffer<T>::random(33, "x");
    Buffer<T> all(33, 99), none(33, 99);
    level.kernels.dropout(*level.stream,
                          {x.data(), all.data(), 33, 0, 5, 1, 2, 0, DTypeOf<T>::value});
    level.kernels.dropout(*level.stream,
                          {x.data(), none.data(), 33, 0, 5, 1, 2, 1, DTypeOf<T>::value});
    CHECK(all.same_bits(x));
    for (int64_t i = 0; i < 33; ++i) CHECK(none[i] == 0);
  });
}

}  // namespace mtrain::testing
