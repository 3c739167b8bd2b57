#include "kernel_harness.h"

namespace mtrain::testing {
namespace {

struct Stats {
  double mean, rstd;
};

template <class T>
Stats row_stats(const Buffer<T>& x, int64_t row, int64_t cols, double eps, bool centred) {
  double mean = 0, ss = 0;
  for (int64_t i = 0; i < cols; ++i) mean += x[row * cols + i] / static_cast<double>(cols);
  if (!centred) mean = 0;
  for (int64_t i = 0; i < cols; ++i) ss += (x[row * cols + i] - mean) * (x[row * cols + i] - mean);
  return {mean, 1 / std::sqrt(ss / static_cast<double>(cols) + eps)};
}

/// The gradients of Σ dy·y by the textbook formulas, in double.
struct NormGrads {
  std::vector<double> dx, dw, db;
};
template <class T>
NormGrads reference_backward(const Buffer<T>& dy, const Buffer<T>& x, const Buffer<T>& w,
                             int64_t rows, int64_t cols, double eps, bool centred) {
  NormGrads g{std::vector<double>(static_cast<size_t>(rows * cols)),
              std::vector<double>(static_cast<size_t>(cols)),
              std::vector<double>(static_cast<size_t>(cols))};
  double n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    Stats s = row_stats(x, r, cols, eps, centred);
    double mean_g = 0, mean_gx = 0;
    for (int64_t i = 0; i < cols; ++i) {
      double xhat = (x[r * cols + i] - s.mean) * s.rstd, v = dy[r * cols + i] * w[i];
      mean_g += v / n;
      mean_gx += v * xhat / n;
      g.dw[static_cast<size_t>(i)] += dy[r * cols + i] * xhat;
      g.db[static_cast<size_t>(i)] += dy[r * cols + i];
    }
    if (!centred) mean_g = 0;
    for (int64_t i = 0; i < cols; ++i) {
      double xhat = (x[r * cols + i] - s.mean) * s.rstd;
      g.dx[static_cast<size_t>(r * cols + i)] =
          s.rstd * (dy[r * cols + i] * w[i] - mean_g - xhat * mean_gx);
    }
  }
  return g;
}

const std::vector<int64_t> kRows = {0, 1, 3, 65, 200};

}  // namespace

TEST_CASE("rms_norm forward and backward match the formula") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t rows : kRows)
      for (int64_t cols : kOddSizes) {
        INFO(rows, " x ", cols);
        float eps = 1e-5f;
        auto x = Buffer<T>::random(rows * cols, "x"), w = Buffer<T>::random(cols, "w"),
             dy = Buffer<T>::random(rows * cols, "dy");
        Buffer<T> y(rows * cols, 99);
        Buffer<float> rstd(rows, 99);
        level.kernels.rms_norm(*level.stream, {x.data(), w.data(), y.data(), rstd.data(), rows,
                                               cols, eps, DTypeOf<T>::value});
        check_close(
            rstd, [&](int64_t r) { return row_stats(x, r, cols, eps, false).rstd; }, "rstd");
        check_close(
            y,
            [&](int64_t i) {
              return w[i % cols] * x[i] * row_stats(x, i / cols, cols, eps, false).rstd;
            },
            "y");

        NormGrads want = reference_backward(dy, x, w, rows, cols, eps, false);
        for (bool accumulate : {false, true}) {
          double before = accumulate ? 0.5 : 99;
          Buffer<T> dx(rows * cols, before);
          Buffer<float> dw(cols, before);
          level.kernels.rms_norm_backward(
              *level.stream, {dy.data(), x.data(), w.data(), rstd.data(), dx.data(), dw.data(),
                              rows, cols, accumulate, accumulate, DTypeOf<T>::value});
          double add = accumulate ? 0.5 : 0;
          check_close(
              dx, [&](int64_t i) { return want.dx[static_cast<size_t>(i)] + add; }, "dx", 4);
          check_close(
              dw, [&](int64_t i) { return want.dw[static_cast<size_t>(i)] + add; }, "dw", 20);
        }
        Buffer<T> dx(rows * cols);
        Buffer<float> dw(cols);
        level.kernels.rms_norm_backward(
            *level.stream, {dy.data(), x.data(), w.data(), rstd.data(), nullptr, dw.data(), rows,
                            cols, false, false, DTypeOf<T>::value});
        check_close(
            dw, [&](int64_t i) { return want.dw[static_cast<size_t>(i)]; }, "dw alone", 20);
        level.kernels.rms_norm_backward(
            *level.stream, {dy.data(), x.data(), w.data(), rstd.data(), dx.data(), nullptr, rows,
                            cols, false, false, DTypeOf<T>::value});
        check_close(
            dx, [&](int64_t i) { return want.dx[static_cast<size_t>(i)]; }, "dx alone", 4);
      }
  });
}

TEST_CASE("layer_norm forward and backward match the formula") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t rows : kRows)
      for (int64_t cols : kOddSizes) {
        if (cols < 3) continue;  // one column has no variance: only rounding would be compared
        INFO(rows, " x ", cols);
        float eps = 1e-5f;
        auto x = Buffer<T>::random(rows * cols, "x"), w = Buffer<T>::random(cols, "w"),
             b = Buffer<T>::random(cols, "b"), dy = Buffer<T>::random(rows * cols, "dy");
        Buffer<float> mean(rows, 99), rstd(rows, 99);
        for (bool bias : {true, false}) {
          Buffer<T> y(rows * cols, 99);
          level.kernels.layer_norm(
              *level.stream, {x.data(), w.data(), bias ? b.data() : nullptr, y.data(), mean.data(),
                              rstd.data(), rows, cols, eps, DTypeOf<T>::value});
          check_close(
              mean, [&](int64_t r) { return row_stats(x, r, cols, eps, true).mean; }, "mean");
          check_close(
              rstd, [&](int64_t r) { return row_stats(x, r, cols, eps, true).rstd; }, "rstd", 0.1,
              2);
          check_close(
              y,
              [&](int64_t i) {
                Stats s = row_stats(x, i / cols, cols, eps, true);
                return w[i % cols] * (x[i] - s.mean) * s.rstd + (bias ? b[i % cols] : 0);
              },
              "y", 1);
        }
        NormGrads want = reference_backward(dy, x, w, rows, cols, eps, true);
        for (bool accumulate : {false, true}) {
          double before = accumulate ? 0.5 : 99, add = accumulate ? 0.5 : 0;
          Buffer<T> dx(rows * cols, before);
          Buffer<float> dw(cols, before), db(cols, before);
          level.kernels.layer_norm_backward(
              *level.stream,
              {dy.data(), x.data(), w.data(), mean.data(), rstd.data(), dx.data(), dw.data(),
               db.data(), rows, cols, accumulate, accumulate, accumulate, DTypeOf<T>::value});
          check_close(
              dx, [&](int64_t i) { return want.dx[static_cast<size_t>(i)] + add; }, "dx", 8);
          check_close(
              dw, [&](int64_t i) { return want.dw[static_cast<size_t>(i)] + add; }, "dw", 20);
          check_close(
              db, [&](int64_t i) { return want.db[static_cast<size_t>(i)] + add; }, "db", 20);
        }
        Buffer<float> db(cols, 99);
        level.kernels.layer_norm_backward(
            *level.stream,
            {dy.data(), x.data(), w.data(), mean.data(), rstd.data(), nullptr, nullptr, db.data(),
             rows, cols, false, false, false, DTypeOf<T>::value});
        check_close(
            db, [&](int64_t i) { return want.db[static_cast<size_t>(i)]; }, "db alone", 20);
      }
  });
}

TEST_CASE("norm gradients agree with finite differences of the forward formula") {
  int64_t rows = 3, cols = 17;
  auto x = Buffer<float>::random(rows * cols, "x"), w = Buffer<float>::random(cols, "w"),
       dy = Buffer<float>::random(rows * cols, "dy");
  for (bool centred : {false, true}) {
    NormGrads g = reference_backward(dy, x, w, rows, cols, 1e-5, centred);
    auto loss = [&](const Buffer<float>& at) {
      double total = 0;
      for (int64_t i = 0; i < rows * cols; ++i) {
        Stats s = row_stats(at, i / cols, cols, 1e-5, centred);
        total += dy[i] * w[i % cols] * (at[i] - s.mean) * s.rstd;
      }
      return total;
    };
    for (int64_t i = 0; i < rows * cols; ++i) {
      Buffer<float> up(x), down(x);
      up.set(i, x[i] + 0x1p-10);
      down.set(i, x[i] - 0x1p-10);
      CHECK(g.dx[static_cast<size_t>(i)] ==
            doctest::Approx((loss(up) - loss(down)) / (up[i] - down[i])).epsilon(1e-4).scale(1));
    }
  }
}

TEST_CASE("norms pass NaN and infinity on") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (double bad : {std::nan(""), HUGE_VAL}) {
      int64_t rows = 3, cols = 65;
      auto x = Buffer<T>::random(rows * cols, "x"), w = Buffer<T>::random(cols, "w");
      x.set(cols + 64, bad);
      Buffer<T> y(rows * cols);
      Buffer<float> mean(rows), rstd(rows);
      level.kernels.rms_norm(*level.stream, {x.data(), w.data(), y.data(), rstd.data(), rows, cols,
                                             1e-5f, DTypeOf<T>::value});
      CHECK(std::isnan(y[cols + 64]));
      CHECK(std::isfinite(y[cols - 1]));
      CHECK(std::isfinite(y[2 * cols]));
      level.kernels.layer_norm(*level.stream, {x.data(), w.data(), nullptr, y.data(), mean.data(),
                                               rstd.data(), rows, cols, 1e-5f, DTypeOf<T>::value});
      CHECK(std::isnan(y[cols]));
      CHECK(std::isfinite(y[2 * cols]));
    }
  });
}

}  // namespace mtrain::testing
