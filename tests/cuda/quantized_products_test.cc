// FP8 and FP4 on the GPU: codes, scales and their places have the CPU's bits; products are those of
// the codes, on the unit where the device has one and as bf16 where it has none.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "contract/harness.h"
#include "cuda_backend.h"
#include "mtrain/cpu/cpu_backend.h"

using namespace mtrain;
using contract::random_values;
using contract::Values;

namespace {

struct Both {
  std::unique_ptr<Backend> cpu_backend = make_cpu_backend(2),
                           gpu_backend = std::make_unique<cuda::CudaBackend>();
  ExecutionContext cpu{*cpu_backend}, gpu{*gpu_backend};
};

std::vector<uint8_t> bytes_of(ExecutionContext& ctx, const Tensor& t) {
  std::vector<uint8_t> out(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  ctx.download(t, out.data());
  return out;
}

struct Tiles {
  QuantScale scale;
  QuantFormat format;
  int64_t rows, cols;
};
constexpr Tiles kTiles[] = {{QuantScale::tensor, QuantFormat::e4m3, 1, 1},
                            {QuantScale::tensor, QuantFormat::e5m2, 1, 1},
                            {QuantScale::power_of_two, QuantFormat::e4m3, 1, 128},
                            {QuantScale::power_of_two, QuantFormat::e5m2, 1, 128},
                            {QuantScale::power_of_two, QuantFormat::e4m3, 128, 128},
                            {QuantScale::e8m0, QuantFormat::e4m3, 1, 32},
                            {QuantScale::nvfp4, QuantFormat::e2m1, 1, 16},
                            {QuantScale::nvfp4, QuantFormat::e2m1, 16, 16}};

struct Packed {
  QuantLayout layout;
  Tensor values, codes, scales, factor, packed, packed_scales;
};

Packed quantized(ExecutionContext& ctx, const Values& values, int64_t rows, int64_t cols,
                 DType dtype, const Tiles& tiles, bool contract_rows, bool stochastic = false) {
  Tensor x = contract::make(ctx, values, {rows, cols}, dtype), amax = ctx.empty({1}, DType::f32);
  ctx.kernels().amax(ctx.stream(), {.x = x.raw(),
                                    .count = rows * cols,
                                    .amax = amax.data<float>(),
                                    .accumulate = false,
                                    .dtype = dtype});
  Packed out;
  int64_t tile_rows = contract_rows ? tiles.cols : tiles.rows,
          tile_cols = contract_rows ? tiles.rows : tiles.cols;
  out.values = ctx.zeros({rows, cols}, DType::bf16);
  out.codes = ctx.zeros({rows, cols}, DType::u8);
  out.scales = ctx.zeros({(rows + tile_rows - 1) / tile_rows, (cols + tile_cols - 1) / tile_cols},
                         DType::f32);
  out.factor = ctx.zeros({1}, DType::f32);
  QuantizeArgs a{.x = x.raw(),
                 .values = out.values.data<bf16>(),
                 .codes = out.codes.data<uint8_t>(),
                 .scales = tiles.scale == QuantScale::tensor ? nullptr : out.scales.data<float>(),
                 .amax = amax.data<float>(),
                 .factor = out.factor.data<float>(),
                 .rows = rows,
                 .cols = cols,
                 .tile_rows = tile_rows,
                 .tile_cols = tile_cols,
                 .format = tiles.format,
                 .scale = tiles.scale,
                 .stochastic = stochastic,
                 .seed = 3,
                 .name_key = 5,
                 .step = 7,
                 .first_row = 2,
                 .all_cols = cols,
                 .dtype = dtype,
                 .contract_rows = contract_rows};
  out.layout = layout_of(a);
  out.packed = ctx.zeros({out.layout.code_bytes()}, DType::u8);
  out.packed_scales = ctx.zeros({std::max<int64_t>(1, out.layout.scale_bytes())}, DType::u8);
  a.packed = out.packed.data<uint8_t>();
  if (out.layout.scale_bytes() > 0) a.packed_scales = out.packed_scales.raw();
  ctx.kernels().quantize(ctx.stream(), a);
  return out;
}

/// What the device makes of codes that are there already.
void check_carried(ExecutionContext& ctx, const Packed& made, int64_t rows, int64_t cols,
                   QuantFormat format, bool contract_rows) {
  Tensor values = ctx.zeros({rows, cols}, DType::bf16), codes = ctx.zeros({rows, cols}, DType::u8),
         packed = ctx.zeros({made.layout.code_bytes()}, DType::u8);
  ctx.kernels().quantize(ctx.stream(), {.x = made.codes.raw(),
                                        .values = values.data<bf16>(),
                                        .codes = codes.data<uint8_t>(),
                                        .scales = nullptr,
                                        .amax = nullptr,
                                        .factor = nullptr,
                                        .rows = rows,
                                        .cols = cols,
                                        .format = format,
                                        .dtype = DType::u8,
                                        .packed = packed.data<uint8_t>(),
                                        .contract_rows = contract_rows});
  CHECK(bytes_of(ctx, values) == bytes_of(ctx, made.values));
  CHECK(bytes_of(ctx, codes) == bytes_of(ctx, made.codes));
  CHECK(bytes_of(ctx, packed) == bytes_of(ctx, made.packed));
}

Values with_outliers(int64_t count, const char* key) {
  Values v = random_values(count, key, 0.02);
  for (size_t i = 0; i < v.size(); i += 37) v[i] *= 30;
  return v;
}

/// A product of two operands whose lines are rows and columns of the result, added to `before`.
Values product(ExecutionContext& ctx, const Packed& a, const Packed& b, const Values& before,
               DType c_dtype) {
  Tensor c = contract::make(ctx, before, {a.layout.lines, b.layout.lines}, c_dtype);
  ctx.kernels().quantized_gemm(
      ctx.stream(), {.product = {.a = a.packed.raw(),
                                 .b = b.packed.raw(),
                                 .c = c.raw(),
                                 .m = a.layout.lines,
                                 .n = b.layout.lines,
                                 .k = a.layout.k,
                                 .ldc = b.layout.lines,
                                 .beta = 1,
                                 .c_dtype = c_dtype,
                                 .scale_a = a.factor.data<float>(),
                                 .scale_b = b.factor.data<float>()},
                     .a = a.layout,
                     .b = b.layout,
                     .a_scales = a.layout.scale_bytes() > 0 ? a.packed_scales.raw() : nullptr,
                     .b_scales = b.layout.scale_bytes() > 0 ? b.packed_scales.raw() : nullptr});
  return contract::values_of(c);
}

}  // namespace

TEST_CASE("largest values, codes and scales have the CPU's bits, and lie where the CPU puts them") {
  Both on;
  for (auto [rows, cols] : {std::pair<int64_t, int64_t>{1, 16}, {48, 80}, {257, 129}, {512, 1040}})
    for (const Tiles& tiles : kTiles)
      for (DType dtype : contract::kDTypes)
        for (bool contract_rows : {false, true})
          for (bool stochastic : {false, true}) {
            if (stochastic && tiles.scale != QuantScale::nvfp4) continue;
            INFO(rows << "x" << cols << " " << name(dtype) << " " << name(tiles.format) << " scale "
                      << static_cast<int>(tiles.scale) << " tiles " << tiles.rows << "x"
                      << tiles.cols << (contract_rows ? " sum over rows" : ""));
            Values x = with_outliers(rows * cols, "x");
            Packed cpu = quantized(on.cpu, x, rows, cols, dtype, tiles, contract_rows, stochastic),
                   gpu = quantized(on.gpu, x, rows, cols, dtype, tiles, contract_rows, stochastic);
            CHECK(bytes_of(on.cpu, cpu.values) == bytes_of(on.gpu, gpu.values));
            CHECK(bytes_of(on.cpu, cpu.codes) == bytes_of(on.gpu, gpu.codes));
            CHECK(bytes_of(on.cpu, cpu.scales) == bytes_of(on.gpu, gpu.scales));
            CHECK(bytes_of(on.cpu, cpu.factor) == bytes_of(on.gpu, gpu.factor));
            CHECK(bytes_of(on.cpu, cpu.packed) == bytes_of(on.gpu, gpu.packed));
            CHECK(bytes_of(on.cpu, cpu.packed_scales) == bytes_of(on.gpu, gpu.packed_scales));
            if (tiles.scale == QuantScale::tensor)
              check_carried(on.gpu, gpu, rows, cols, tiles.format, contract_rows);
          }
}

TEST_CASE(
    "codes that only a product reads have the bits of those that are written elsewhere, too") {
  Both on;
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 32}, {3, 8}, {48, 96}, {130, 72}, {257, 1056}, {512, 40}})
    for (QuantFormat format : {QuantFormat::e4m3, QuantFormat::e5m2})
      for (DType dtype : contract::kDTypes)
        for (bool contract_rows : {false, true})
          for (double outlier :
               {1.0, 3e4, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
            INFO(rows << "x" << cols << " " << name(dtype) << " " << name(format) << ", outlier "
                      << outlier << (contract_rows ? ", sum over rows" : ""));
            Values values = random_values(rows * cols, "x");
            values[1] = -1e-12;  // rounds to -0, and those below to subnormal codes
            for (size_t i = 2; i < 8; ++i) values[i] *= 1e-4;
            // The sign of a NaN is not defined.
            values[0] = std::isnan(outlier) ? outlier : -outlier, values[values.size() / 2] = 0,
            values.back() = outlier;
            auto packed = [&](ExecutionContext& ctx) {
              Tensor x = contract::make(ctx, values, {rows, cols}, dtype),
                     // Of earlier steps, as with delayed scaling: the outlier saturates.
                  amax = contract::make(ctx, {2.5}, {1}, DType::f32),
                     factor = ctx.zeros({1}, DType::f32);
              QuantizeArgs a{.x = x.raw(),
                             .values = nullptr,
                             .codes = nullptr,
                             .scales = nullptr,
                             .amax = amax.data<float>(),
                             .factor = factor.data<float>(),
                             .rows = rows,
                             .cols = cols,
                             .format = format,
                             .dtype = dtype,
                             .contract_rows = contract_rows};
              const std::vector<uint8_t> before(static_cast<size_t>(layout_of(a).code_bytes()),
                                                0xAB);
              Tensor out = ctx.from_host<uint8_t>(before, {layout_of(a).code_bytes()});
              a.packed = out.data<uint8_t>();
              ctx.kernels().quantize(ctx.stream(), a);
              return std::pair(bytes_of(ctx, out), bytes_of(ctx, factor));
            };
            CHECK(packed(on.cpu) == packed(on.gpu));
          }
}

TEST_CASE(
    "what is not finite shows in the largest value, and a Hadamard transform has the CPU's "
    "bits") {
  Both on;
  auto amax = [](ExecutionContext& ctx, const Values& values) {
    Tensor x = contract::make(ctx, values, {static_cast<int64_t>(values.size())}, DType::bf16),
           out = ctx.empty({1}, DType::f32);
    ctx.kernels().amax(ctx.stream(), {.x = x.raw(),
                                      .count = x.numel(),
                                      .amax = out.data<float>(),
                                      .accumulate = false,
                                      .dtype = x.dtype()});
    return contract::values_of(out)[0];
  };
  Values x = random_values(100001, "x");
  CHECK(amax(on.gpu, x) == amax(on.cpu, x));
  x[77777] = -INFINITY;
  CHECK(amax(on.gpu, x) == INFINITY);
  x[5] = NAN;
  CHECK(std::isnan(amax(on.gpu, x)));
  for (DType dtype : contract::kDTypes) {
    auto rotated = [&](ExecutionContext& ctx) {
      Tensor in = contract::make(ctx, random_values(37 * 70, "h"), {37, 70}, dtype),
             out = ctx.zeros({48, 70}, dtype);
      ctx.kernels().hadamard(
          ctx.stream(),
          {.x = in.raw(), .y = out.raw(), .rows = 37, .cols = 70, .signs = 0x9E37, .dtype = dtype});
      return bytes_of(ctx, out);
    };
    CHECK(rotated(on.cpu) == rotated(on.gpu));
  }
}

TEST_CASE("products of codes are those of their values, on the unit and without it") {
  Both on;
  struct Shape3 {
    int64_t m, n, k;
  };
  for (Shape3 s : {Shape3{128, 256, 512}, {512, 384, 1024}, {33, 48, 96}, {7, 160, 1040}})
    for (const Tiles& tiles : kTiles)
      for (DType c_dtype : {DType::bf16, DType::f32}) {
        // Squares are a weight's: the other operand has groups.
        Tiles groups = tiles;
        groups.rows = 1;
        bool e5m2 = tiles.format == QuantFormat::e5m2;
        if (e5m2) groups.format = QuantFormat::e4m3;  // e5m2 meets e4m3 alone
        INFO(s.m << "x" << s.n << "x" << s.k << " " << name(tiles.format) << " scale "
                 << static_cast<int>(tiles.scale) << " tiles " << tiles.rows << "x" << tiles.cols
                 << " into " << name(c_dtype)
                 << (on.gpu.kernels().multiplies(tiles.scale) ? ", unit" : ", bf16"));
        Values xa = with_outliers(s.m * s.k, "a"), xb = with_outliers(s.n * s.k, "b");
        Packed a = quantized(on.gpu, xa, s.m, s.k, DType::bf16, groups, false),
               b = quantized(on.gpu, xb, s.n, s.k, DType::bf16, tiles, false);
        Values before = contract::round_to(random_values(s.m * s.n, "c", 0.01), c_dtype);
        Values got = product(on.gpu, a, b, before, c_dtype), va = contract::values_of(a.values),
               vb = contract::values_of(b.values);
        double factor = contract::values_of(a.factor)[0] * contract::values_of(b.factor)[0],
               apart = 0, size = 0;
        for (int64_t r = 0; r < s.m; ++r)
          for (int64_t c = 0; c < s.n; ++c) {
            double want = 0;
            for (int64_t k = 0; k < s.k; ++k)
              want += va[static_cast<size_t>(r * s.k + k)] * vb[static_cast<size_t>(c * s.k + k)];
            want = want * factor + before[static_cast<size_t>(r * s.n + c)];
            apart += std::pow(got[static_cast<size_t>(r * s.n + c)] - want, 2), size += want * want;
          }
        // Rounding of the result, or what sums in the unit lose.
        CHECK(std::sqrt(apart / size) < (c_dtype == DType::bf16 ? 3e-3 : 1e-3));
        CHECK(product(on.gpu, a, b, before, c_dtype) == got);  // deterministic
      }
}

TEST_CASE("the unit's products take the scale of a whole tensor from any address") {
  Both on;
  const Tiles tiles = kTiles[0];
  Packed a = quantized(on.gpu, with_outliers(128 * 512, "a"), 128, 512, DType::bf16, tiles, false),
         b = quantized(on.gpu, with_outliers(256 * 512, "b"), 256, 512, DType::bf16, tiles, false);
  const Values before(128 * 256, 0.0);
  const Values want = product(on.gpu, a, b, before, DType::f32);
  Tensor both = on.gpu.zeros({3}, DType::f32);
  on.gpu.copy(both.slice(0, 1, 2), a.factor);
  on.gpu.copy(both.slice(0, 2, 3), b.factor);
  a.factor = both.slice(0, 1, 2), b.factor = both.slice(0, 2, 3);
  CHECK(product(on.gpu, a, b, before, DType::f32) == want);
}

TEST_CASE("a bf16 product joins scales that lie on the device") {
  Both on;
  auto scaled = [&](ExecutionContext& ctx) {
    constexpr int64_t m = 64, n = 96, k = 128;
    Tensor a = contract::make(ctx, random_values(m * k, "a"), {m, k}, DType::bf16),
           b = contract::make(ctx, random_values(n * k, "b"), {n, k}, DType::bf16);
    Tensor c = contract::make(ctx, random_values(m * n, "c"), {m, n}, DType::f32);
    Tensor scales = contract::make(ctx, {0.37, 3.0}, {2}, DType::f32);
    ctx.kernels().gemm(ctx.stream(), {.a = a.raw(),
                                      .b = b.raw(),
                                      .c = c.raw(),
                                      .transpose_b = true,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .lda = k,
                                      .ldb = k,
                                      .ldc = n,
                                      .beta = 1,
                                      .dtype = DType::bf16,
                                      .c_dtype = DType::f32,
                                      .scale_a = scales.data<float>(),
                                      .scale_b = scales.data<float>() + 1});
    return contract::values_of(c);
  };
  Values cpu = scaled(on.cpu), gpu = scaled(on.gpu);
  for (size_t i = 0; i < cpu.size(); ++i) CHECK(std::fabs(cpu[i] - gpu[i]) <= 1e-4);
}
