// What a GPU block computes, compiled for the CPU, against the CPU's own vector code: the same
// bits, in the places where a unit for FP8 and FP4 expects them.
#include "mtrain/kernel/quantize_patch.h"

#include <bit>

#include "kernel_harness.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::testing {
namespace {

struct Tiles {
  QuantScale scale;
  int64_t rows, cols;
};

/// Everything that a call can be asked for.
template <class T>
struct Quantized {
  Buffer<bf16> values;
  Buffer<uint8_t> codes;
  Buffer<float> scales;
  float factor = -1;
  QuantLayout layout;
  Buffer<uint8_t> packed, packed_scales;

  Quantized(Level& level, const Buffer<T>& x, QuantizeArgs a, bool unit)
      : values(x.count()),
        codes(x.count()),
        scales((a.rows + a.tile_rows - 1) / a.tile_rows *
               ((a.cols + a.tile_cols - 1) / a.tile_cols)),
        layout(layout_of(a)),
        packed(unit ? layout.code_bytes() : 0, 0xEE),
        packed_scales(unit ? layout.scale_bytes() : 0, 0xEE) {
    a.x = x.data(), a.values = values.data(), a.codes = codes.data(), a.factor = &factor;
    a.scales = a.scale == QuantScale::tensor ? nullptr : scales.data();
    if (unit) a.packed = packed.data();
    if (unit && packed_scales.count() > 0) a.packed_scales = packed_scales.data();
    level.kernels.quantize(*level.stream, a);
  }
};

/// By the text of cuBLAS's documentation, not by QuantLayout's arithmetic.
int64_t expected_place(const QuantLayout& layout, int64_t line, int64_t group, int64_t groups) {
  int64_t padded = groups;
  while (padded % 4 != 0) ++padded;
  if (layout.scale == QuantScale::power_of_two)
    return layout.square() ? line / 128 * padded + group : group * layout.lines + line;
  int64_t tile_row = line / 128, tile_col = group / 4, r = line % 128, c = group % 4;
  return (tile_row * (padded / 4) + tile_col) * 512 + r % 32 * 16 + r / 32 * 4 + c;
}

template <class T>
void compare(Level& level, int64_t rows, int64_t cols, QuantFormat format, Tiles tiles,
             bool contract_rows, bool stochastic) {
  INFO(rows, "x", cols, " in tiles of ", tiles.rows, "x", tiles.cols, ", ",
       std::string(name(format)), ", scale ", static_cast<int>(tiles.scale),
       contract_rows ? ", sum over rows" : "");
  auto x = Buffer<T>::random(rows * cols, "patch", 0.02);
  for (int64_t i = 0; i < x.count(); i += 7) x.set(i, 30 * x[i]);
  if (rows > 40) x.set(40 * cols + cols / 2, INFINITY);
  float amax = 1.5f;
  QuantizeArgs args{.x = nullptr,
                    .values = nullptr,
                    .codes = nullptr,
                    .scales = nullptr,
                    .amax = &amax,
                    .factor = nullptr,
                    .rows = rows,
                    .cols = cols,
                    .tile_rows = tiles.rows,
                    .tile_cols = tiles.cols,
                    .format = format,
                    .scale = tiles.scale,
                    .headroom = tiles.scale == QuantScale::tensor ? 2.0f : 1.0f,
                    .stochastic = stochastic,
                    .seed = 3,
                    .name_key = 5,
                    .step = 7,
                    .first_row = 11,
                    .first_col = 2,
                    .all_cols = cols + 5,
                    .dtype = DTypeOf<T>::value,
                    .contract_rows = contract_rows};
  Quantized<T> vector(level, x, args, false), patch(level, x, args, true);
  CHECK(same(vector.factor, patch.factor));
  int64_t wrong = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    wrong += !same(to_float(vector.values.data()[i]), to_float(patch.values.data()[i]));
    wrong += vector.codes.data()[i] != patch.codes.data()[i];
  }
  if (tiles.scale != QuantScale::tensor)
    for (int64_t i = 0; i < vector.scales.count(); ++i)
      wrong += !same(vector.scales.data()[i], patch.scales.data()[i]);
  CHECK(wrong == 0);

  const QuantLayout& layout = patch.layout;
  int64_t across = (cols + tiles.cols - 1) / tiles.cols, misplaced = 0;
  for (int64_t l = 0; l < layout.lines; ++l)
    for (int64_t at = 0; at < layout.padded_k(); ++at) {
      int64_t r = contract_rows ? at : l, c = contract_rows ? l : at;
      bool inside = at < layout.k;
      uint8_t byte =
          patch.packed
              .data()[l * layout.line_bytes() + (format == QuantFormat::e2m1 ? at / 2 : at)];
      if (format == QuantFormat::e2m1) byte = at % 2 == 0 ? byte & 0xFu : byte >> 4;
      misplaced += byte != (inside ? vector.codes.data()[r * cols + c] : 0);
      float value = quantized_value(layout, patch.packed.data(), patch.packed_scales.data(), l, at);
      // A tile that is NaN may say so in its scale alone.
      if (inside)
        misplaced += !same(to_float(bf16(value)), to_float(vector.values.data()[r * cols + c]));
      if (!inside || tiles.scale == QuantScale::tensor) continue;
      float want = vector.scales.data()[r / tiles.rows * across + c / tiles.cols];
      int64_t place = expected_place(layout, l, at / layout.group, layout.groups());
      const uint8_t* stored = patch.packed_scales.data() + place * layout.scale_size();
      float got = tiles.scale == QuantScale::power_of_two ? *reinterpret_cast<const float*>(stored)
                  : tiles.scale == QuantScale::e8m0       ? decode_e8m0(*stored)
                                                          : decode_format<E4M3>(*stored);
      misplaced += !same(got, want);
    }
  CHECK(misplaced == 0);
  // Room beyond the matrix is not left as it was: a unit reads it.
  if (tiles.scale == QuantScale::e8m0 || tiles.scale == QuantScale::nvfp4) {
    int64_t untouched = 0;
    for (int64_t i = 0; i < patch.packed_scales.count(); ++i)
      untouched += patch.packed_scales.data()[i] == 0xEE;
    CHECK(untouched == 0);
  }
}

}  // namespace

TEST_CASE("patches have the bits of the vector code, and codes and scales lie as units read them") {
  Level level(cpu::usable_isas().front(), 2);
  const Tiles kRows[] = {{QuantScale::tensor, 1, 1},           {QuantScale::power_of_two, 1, 128},
                         {QuantScale::power_of_two, 128, 128}, {QuantScale::e8m0, 1, 32},
                         {QuantScale::nvfp4, 1, 16},           {QuantScale::nvfp4, 16, 16}};
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{48, 80}, {130, 300}, {1, 16}, {257, 129}, {64, 1040}})
    for (const Tiles& t : kRows)
      for (bool contract_rows : {false, true}) {
        Tiles tiles = contract_rows ? Tiles{t.scale, t.cols, t.rows} : t;
        bool fp4 = t.scale == QuantScale::nvfp4;
        for (QuantFormat format : {QuantFormat::e4m3, QuantFormat::e5m2, QuantFormat::e2m1}) {
          if (fp4 != (format == QuantFormat::e2m1)) continue;
          compare<bf16>(level, rows, cols, format, tiles, contract_rows, false);
          compare<f16>(level, rows, cols, format, tiles, contract_rows, false);
          compare<float>(level, rows, cols, format, tiles, contract_rows, false);
          if (fp4) compare<bf16>(level, rows, cols, format, tiles, contract_rows, true);
        }
      }
}

TEST_CASE("codes stay what they are, and lie as units read them") {
  Level level(cpu::usable_isas().front(), 2);
  for (auto [rows, cols] : {std::pair<int64_t, int64_t>{48, 80}, {130, 300}, {1, 16}, {257, 129}})
    for (QuantFormat format : {QuantFormat::e4m3, QuantFormat::e5m2})
      for (bool contract_rows : {false, true}) {
        INFO(rows, "x", cols, ", ", std::string(name(format)),
             contract_rows ? ", sum over rows" : "");
        auto x = Buffer<bf16>::random(rows * cols, "codes", 0.02);
        x.set(5, INFINITY);
        float amax = 0.05f;
        QuantizeArgs args{.x = nullptr,
                          .values = nullptr,
                          .codes = nullptr,
                          .scales = nullptr,
                          .amax = &amax,
                          .factor = nullptr,
                          .rows = rows,
                          .cols = cols,
                          .format = format,
                          .dtype = DType::bf16,
                          .contract_rows = contract_rows};
        Quantized<bf16> made(level, x, args, true);
        Buffer<uint8_t> packed(made.packed.count(), 0xEE), codes(rows * cols),
            codes_alone(rows * cols);
        Buffer<bf16> values(rows * cols), values_alone(rows * cols);
        args.dtype = DType::u8, args.amax = nullptr, args.x = made.codes.data();
        args.values = values_alone.data(), args.codes = codes_alone.data();
        level.kernels.quantize(*level.stream, args);
        args.values = values.data(), args.codes = codes.data(), args.packed = packed.data();
        level.kernels.quantize(*level.stream, args);
        int64_t wrong = 0;
        for (int64_t i = 0; i < rows * cols; ++i) {
          uint8_t code = made.codes.data()[i];
          float value = to_float(made.values.data()[i]);
          wrong += codes.data()[i] != code || codes_alone.data()[i] != code;
          wrong += !same(to_float(values.data()[i]), value) ||
                   !same(to_float(values_alone.data()[i]), value);
        }
        for (int64_t i = 0; i < packed.count(); ++i)
          wrong += packed.data()[i] != made.packed.data()[i];
        CHECK(wrong == 0);
      }
}

TEST_CASE("tiles that do not fit into a patch are refused") {
  CHECK(patch_takes(QuantScale::e8m0, 1, 32));
  CHECK(patch_takes(QuantScale::power_of_two, 128, 1));
  CHECK(patch_takes(QuantScale::tensor, 7, 5));
  CHECK_FALSE(patch_takes(QuantScale::e8m0, 1, 8));
  CHECK_FALSE(patch_takes(QuantScale::e8m0, 3, 32));
  CHECK_FALSE(patch_takes(QuantScale::e8m0, 256, 32));
  CHECK_FALSE(patch_takes(QuantScale::e8m0, 1, 1));
}

TEST_CASE("the Hadamard transform of 16 has the bits of the vector code") {
  Level level(cpu::usable_isas().front(), 2);
  constexpr int64_t kRows = 37, kCols = 70;
  auto x = Buffer<float>::random(kRows * kCols, "hadamard16");
  Buffer<float> y(48 * kCols);
  level.kernels.hadamard(*level.stream, {.x = x.data(),
                                         .y = y.data(),
                                         .rows = kRows,
                                         .cols = kCols,
                                         .signs = 0x9E37,
                                         .dtype = DType::f32});
  int64_t wrong = 0;
  for (int64_t band = 0; band < 3; ++band)
    for (int64_t c = 0; c < kCols; ++c) {
      float v[16];
      for (int64_t r = 0; r < 16; ++r) {
        float sign = 0x9E37u >> r & 1 ? -0.25f : 0.25f;
        v[r] = band * 16 + r < kRows ? sign * x.data()[(band * 16 + r) * kCols + c] : 0.0f;
      }
      hadamard16(v);
      for (int64_t r = 0; r < 16; ++r) wrong += v[r] != y.data()[(band * 16 + r) * kCols + c];
    }
  CHECK(wrong == 0);
}

}  // namespace mtrain::testing
