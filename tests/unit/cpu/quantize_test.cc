// amax, quantize and hadamard at every level against their definitions, element by element.
#include "mtrain/kernel/quantize.h"

#include <bit>

#include "kernel_harness.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::testing {
namespace {

struct Shape2 {
  int64_t rows, cols, tile_rows, tile_cols;
};

float round_to(QuantFormat format, float x) {
  return format == QuantFormat::e4m3   ? round_to_format<E4M3>(x)
         : format == QuantFormat::e5m2 ? round_to_format<E5M2>(x)
                                       : round_to_format<E2M1>(x);
}
uint8_t encode(QuantFormat format, float x) {
  return format == QuantFormat::e4m3   ? encode_format<E4M3>(x)
         : format == QuantFormat::e5m2 ? encode_format<E5M2>(x)
                                       : encode_format<E2M1>(x);
}

template <class T>
float largest(const Buffer<T>& x, const Shape2& s, int64_t row, int64_t col, int64_t tile_rows,
              int64_t tile_cols) {
  float top = 0;
  for (int64_t r = row; r < std::min(s.rows, row + tile_rows); ++r)
    for (int64_t c = col; c < std::min(s.cols, col + tile_cols); ++c)
      top = std::max(top, std::fabs(static_cast<float>(x[r * s.cols + c])));
  return top;
}

template <class T>
void check_tiles(Level& level, const Shape2& s, QuantFormat format, QuantScale scale) {
  INFO(s.rows, "x", s.cols, " in tiles of ", s.tile_rows, "x", s.tile_cols, ", ",
       std::string(name(format)), ", scale ", static_cast<int>(scale));
  auto x = Buffer<T>::random(s.rows * s.cols, "quantize", 0.02);
  for (int64_t i = 0; i < x.count(); i += 7) x.set(i, 30 * x[i]);  // outliers
  float amax = largest(x, s, 0, 0, s.rows, s.cols), factor = -1;
  bool whole = scale == QuantScale::tensor;
  int64_t down = whole ? 1 : (s.rows + s.tile_rows - 1) / s.tile_rows,
          across = whole ? 1 : (s.cols + s.tile_cols - 1) / s.tile_cols;
  Buffer<bf16> values(x.count());
  Buffer<uint8_t> codes(x.count());
  Buffer<float> scales(down * across);
  level.kernels.quantize(*level.stream, {.x = x.data(),
                                         .values = values.data(),
                                         .codes = codes.data(),
                                         .scales = whole ? nullptr : scales.data(),
                                         .amax = &amax,
                                         .factor = &factor,
                                         .rows = s.rows,
                                         .cols = s.cols,
                                         .tile_rows = s.tile_rows,
                                         .tile_cols = s.tile_cols,
                                         .format = format,
                                         .scale = scale,
                                         .headroom = whole ? 2.0f : 1.0f,
                                         .dtype = DTypeOf<T>::value});
  QuantScaling all =
      scale == QuantScale::nvfp4 ? nvfp4_global(amax) : tensor_scaling(amax, max_of(format), 2);
  CHECK(factor == (whole || scale == QuantScale::nvfp4 ? all.decode : 1.0f));
  int64_t wrong = 0;
  std::vector<QuantScaling> tiles(static_cast<size_t>(down * across), {all.encode, 1});
  for (int64_t t = 0; t < (whole ? 0 : down * across); ++t) {
    float top =
        largest(x, s, t / across * s.tile_rows, t % across * s.tile_cols, s.tile_rows, s.tile_cols);
    QuantScaling& mine = tiles[static_cast<size_t>(t)];
    mine = scale == QuantScale::power_of_two ? power_of_two_scaling(top, max_of(format))
           : scale == QuantScale::e8m0       ? e8m0_scaling(top, max_of(format))
                                             : nvfp4_scaling(top, all.encode);
    wrong += !same(scales.data()[t], mine.decode);
    if (scale != QuantScale::nvfp4 && top > 0)
      CHECK(std::exp2(std::round(std::log2(mine.decode))) == mine.decode);
  }
  double relative = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) {
      int64_t i = r * s.cols + c, tile = whole ? 0 : r / s.tile_rows * across + c / s.tile_cols;
      const QuantScaling& mine = tiles[static_cast<size_t>(tile)];
      float rounded = round_to(format, static_cast<float>(x[i]) * mine.encode);
      wrong += !same(static_cast<float>(values[i]), rounded * mine.decode);
      wrong += codes.data()[i] != encode(format, rounded);
      relative = std::max(relative, std::fabs(values[i] * factor - x[i]) /
                                        (std::fabs(x[i]) + 0.05 * static_cast<double>(amax)));
    }
  CHECK(wrong == 0);
  // Half a step of the format, and of what its smallest values can say.
  CHECK(relative < (format == QuantFormat::e4m3   ? 0.065
                    : format == QuantFormat::e5m2 ? 0.13
                                                  : 0.65));
}

}  // namespace

TEST_CASE("quantize equals its definition for every shape of tiles") {
  each_level_and_dtype([&](auto type, Level& level) {
    using T = decltype(type);
    for (Shape2 s : {Shape2{48, 80, 1, 32},
                     {80, 48, 32, 1},
                     {130, 200, 128, 128},
                     {33, 17, 16, 16},
                     {5, 300, 1, 128},
                     {1, 1, 16, 1}})
      for (QuantFormat format : {QuantFormat::e4m3, QuantFormat::e5m2, QuantFormat::e2m1}) {
        check_tiles<T>(level, s, format, QuantScale::tensor);
        check_tiles<T>(level, s, format, QuantScale::power_of_two);
        check_tiles<T>(level, s, format, QuantScale::e8m0);
      }
    check_tiles<T>(level, {64, 96, 1, 16}, QuantFormat::e2m1, QuantScale::nvfp4);
    check_tiles<T>(level, {70, 40, 16, 16}, QuantFormat::e2m1, QuantScale::nvfp4);
  });
}

TEST_CASE("amax is the largest magnitude, and shows what is not finite") {
  each_level_and_dtype([&](auto type, Level& level) {
    using T = decltype(type);
    for (int64_t n : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{1000}, int64_t{40000}}) {
      auto x = Buffer<T>::random(n, "amax");
      double want = 0;
      for (int64_t i = 0; i < n; ++i) want = std::max(want, std::fabs(x[i]));
      float amax = 100;
      AmaxArgs args{.x = x.data(),
                    .count = n,
                    .amax = &amax,
                    .accumulate = false,
                    .dtype = DTypeOf<T>::value};
      level.kernels.amax(*level.stream, args);
      CHECK(static_cast<double>(amax) == want);
      amax = 50, args.accumulate = true;
      level.kernels.amax(*level.stream, args);
      CHECK(amax == 50);
      x.set(n / 2, -INFINITY), args.accumulate = false;
      level.kernels.amax(*level.stream, args);
      CHECK(amax == INFINITY);
      x.set(n - 1, NAN);
      level.kernels.amax(*level.stream, args);
      CHECK(std::isnan(amax));
    }
  });
}

TEST_CASE("a tile that is not finite becomes NaN, and no other does") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 2);
    for (QuantScale scale : {QuantScale::power_of_two, QuantScale::e8m0, QuantScale::nvfp4}) {
      CAPTURE(static_cast<int>(scale));
      auto x = Buffer<float>::random(4 * 64, "finite");
      float amax = 4, factor;
      x.set(64 + 40, INFINITY);
      Buffer<bf16> values(x.count());
      level.kernels.quantize(*level.stream, {.x = x.data(),
                                             .values = values.data(),
                                             .codes = nullptr,
                                             .scales = nullptr,
                                             .amax = &amax,
                                             .factor = &factor,
                                             .rows = 4,
                                             .cols = 64,
                                             .tile_rows = 1,
                                             .tile_cols = 16,
                                             .format = QuantFormat::e2m1,
                                             .scale = scale,
                                             .dtype = DType::f32});
      for (int64_t i = 0; i < x.count(); ++i)
        CHECK(std::isnan(values[i]) == (i >= 64 + 32 && i < 64 + 48));
    }
  }
}

TEST_CASE("stochastic rounding depends on an element's place alone and keeps the mean") {
  constexpr int64_t kRows = 64, kCols = 64;
  Level level(cpu::usable_isas().front(), 2);
  auto x = Buffer<float>::random(kRows * kCols, "stochastic");
  float amax = 0;
  level.kernels.amax(
      *level.stream,
      {.x = x.data(), .count = x.count(), .amax = &amax, .accumulate = false, .dtype = DType::f32});
  auto quantized = [&](int64_t first_row, int64_t rows, uint64_t step) {
    Buffer<bf16> values(rows * kCols);
    level.kernels.quantize(*level.stream, {.x = x.data() + first_row * kCols,
                                           .values = values.data(),
                                           .codes = nullptr,
                                           .scales = nullptr,
                                           .amax = &amax,
                                           .factor = nullptr,
                                           .rows = rows,
                                           .cols = kCols,
                                           .tile_rows = 1,
                                           .tile_cols = 16,
                                           .format = QuantFormat::e2m1,
                                           .scale = QuantScale::nvfp4,
                                           .stochastic = true,
                                           .seed = 3,
                                           .name_key = 5,
                                           .step = step,
                                           .first_row = first_row,
                                           .all_cols = kCols,
                                           .dtype = DType::f32});
    return values;
  };
  Buffer<bf16> whole = quantized(0, kRows, 1), part = quantized(24, 16, 1);
  for (int64_t i = 0; i < part.count(); ++i) CHECK(part[i] == whole[24 * kCols + i]);
  CHECK(!whole.same_bits(quantized(0, kRows, 2)));
  // The mean over many draws is the value, except for what a scale saturates at the top (one part
  // in 16 of a tile's largest).
  float factor = 1 / nvfp4_global(amax).encode;
  std::vector<double> sum(static_cast<size_t>(x.count()));
  constexpr int kDraws = 400;
  for (int i = 0; i < kDraws; ++i) {
    Buffer<bf16> q = quantized(0, kRows, static_cast<uint64_t>(100 + i));
    for (int64_t e = 0; e < x.count(); ++e)
      sum[static_cast<size_t>(e)] += q[e] * static_cast<double>(factor);
  }
  double bias = 0, size = 0;
  for (int64_t e = 0; e < x.count(); ++e)
    bias += sum[static_cast<size_t>(e)] / kDraws - x[e], size += std::fabs(x[e]);
  CHECK(std::fabs(bias) / size < 0.01);
}

TEST_CASE("the Hadamard transform keeps products over rows") {
  each_level_and_dtype([&](auto type, Level& level) {
    using T = decltype(type);
    for (int64_t rows : {int64_t{16}, int64_t{37}, int64_t{64}}) {
      constexpr int64_t kCols = 70;
      int64_t padded = (rows + 15) / 16 * 16;
      auto x = Buffer<T>::random(rows * kCols, "hadamard");
      Buffer<T> y(padded * kCols);
      level.kernels.hadamard(*level.stream, {.x = x.data(),
                                             .y = y.data(),
                                             .rows = rows,
                                             .cols = kCols,
                                             .signs = 0x5A3C,
                                             .dtype = DTypeOf<T>::value});
      for (int64_t a = 0; a < 3; ++a)
        for (int64_t b = 0; b < kCols; ++b) {
          double before = 0, after = 0;
          for (int64_t r = 0; r < rows; ++r) before += x[r * kCols + a] * x[r * kCols + b];
          for (int64_t r = 0; r < padded; ++r) after += y[r * kCols + a] * y[r * kCols + b];
          CHECK(std::fabs(after - before) <= 2 * static_cast<double>(rows) * kRounding<T> + 1e-4);
        }
      // One row alone spreads over all 16: plus or minus a quarter of it.
      for (int64_t i = 0; i < x.count(); ++i) x.set(i, i < kCols ? 4 : 0);
      level.kernels.hadamard(*level.stream, {.x = x.data(),
                                             .y = y.data(),
                                             .rows = rows,
                                             .cols = kCols,
                                             .signs = 1,
                                             .dtype = DTypeOf<T>::value});
      for (int64_t r = 0; r < 16; ++r) CHECK(y[r * kCols] == -1);
    }
  });
}

TEST_CASE("gemm multiplies by the scales of its operands") {
  each_level_and_dtype([&](auto type, Level& level) {
    using T = decltype(type);
    constexpr int64_t m = 40, n = 70, k = 64;
    auto a = Buffer<T>::random(m * k, "a"), b = Buffer<T>::random(n * k, "b");
    auto bias = Buffer<float>::random(n, "bias"), before = Buffer<float>::random(m * n, "c");
    for (float scale : {1.0f, 0.37f, 1e-3f})
      for (bool with_bias : {false, true}) {
        float scale_b = 3;
        Buffer<float> c = before;
        level.kernels.gemm(*level.stream, {.a = a.data(),
                                           .b = b.data(),
                                           .c = c.data(),
                                           .bias = with_bias ? bias.data() : nullptr,
                                           .transpose_b = true,
                                           .m = m,
                                           .n = n,
                                           .k = k,
                                           .lda = k,
                                           .ldb = k,
                                           .ldc = n,
                                           .beta = 1,
                                           .dtype = DTypeOf<T>::value,
                                           .c_dtype = DType::f32,
                                           .scale_a = &scale,
                                           .scale_b = &scale_b});
        check_close(
            c,
            [&](int64_t i) {
              double sum = 0;
              for (int64_t p = 0; p < k; ++p) sum += a[i / n * k + p] * b[i % n * k + p];
              return static_cast<double>(scale) * 3 * sum + before[i] +
                     (with_bias ? bias[i % n] : 0);
            },
            "c", 4.0);
      }
  });
}

}  // namespace mtrain::testing
