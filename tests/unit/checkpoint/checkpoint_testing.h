// What the tests of mtrain/checkpoint share: error capture, sample slices.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/checkpoint/slice.h"
#include "temp_dir.h"

namespace mtrain::testing {

/// The class of the mtrain::Error that `act` throws and its text, "" when it throws none. Anything
/// else fails the test.
inline std::string failure(const std::function<void()>& act, ErrorClass* error_class = nullptr) {
  try {
    act();
  } catch (const Error& error) {
    if (error_class) *error_class = error.error_class();
    return error.what();
  }
  return {};
}

inline void put_file(const fs::path& path, std::string_view bytes) {
  fs::remove(path);  // a new file: truncating a full one waits for the disk on some file systems
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

/// A global tensor with content, from which slices are copied.
struct Sample {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;

  /// Copies one box out, element by element (the slow, obvious way).
  std::vector<std::byte> copy_of(const Box& box) const {
    const size_t width = size_of(dtype);
    std::vector<std::byte> out(static_cast<size_t>(box.extent.numel()) * width);
    for (int64_t i = 0; i < box.extent.numel(); ++i) {
      int64_t rest = i, from = 0, scale = 1;
      for (int d = shape.rank() - 1; d >= 0; --d) {
        from += (rest % box.extent[d] + box.offset[d]) * scale;
        rest /= box.extent[d];
        scale *= shape[d];
      }
      std::memcpy(out.data() + static_cast<size_t>(i) * width,
                  bytes.data() + static_cast<size_t>(from) * width, width);
    }
    return out;
  }
};

/// Small tensors of every awkward kind; equal for equal seeds. Values are finite.
inline std::vector<Sample> sample_tensors(uint32_t seed) {
  std::vector<Sample> out = {{"model.embed.weight", DType::f32, {12, 8}, {}},
                             {"model.norm.weight", DType::f32, {8}, {}},
                             {"model.cube", DType::bf16, {4, 3, 5}, {}},
                             {"optim.step", DType::i64, {}, {}},
                             {"model.empty", DType::f32, {0, 4}, {}},
                             {"optim.exp_avg", DType::f32, {12, 8}, {}},
                             {"bytes", DType::u8, {7}, {}},
                             {"model.long", DType::f16, {1, 300}, {}}};
  std::mt19937 random(seed);
  for (auto& tensor : out) {
    tensor.bytes.resize(static_cast<size_t>(tensor.shape.numel()) * size_of(tensor.dtype));
    for (auto& byte : tensor.bytes)
      byte = static_cast<std::byte>(random() & 0x37);  // no exponent is all ones
  }
  return out;
}

/// Slices with the memory they point at.
struct Slices {
  std::vector<Slice> list;
  std::vector<std::vector<std::byte>> memory;

  void add(const Sample& sample, const Box& box, bool filled) {
    memory.push_back(sample.copy_of(box));
    if (!filled) std::fill(memory.back().begin(), memory.back().end(), std::byte{0xEE});
    list.push_back(
        {sample.name, sample.dtype, sample.shape, box.offset, box.extent, memory.back()});
  }
};

/// Part `part` of `parts` along dimension `dim` (modulo the rank) of each tensor; empty parts are
/// left out.
inline Slices slices_of(const std::vector<Sample>& samples, int part, int parts, int dim,
                        bool filled = true) {
  Slices out;
  for (const auto& sample : samples) {
    Box box{sample.shape, sample.shape};
    for (int d = 0; d < box.offset.rank(); ++d) box.offset[d] = 0;
    if (sample.shape.rank() == 0 || sample.shape.numel() == 0) {
      if (part == 0) out.add(sample, box, filled);
      continue;
    }
    int d = dim % sample.shape.rank();
    int64_t size = sample.shape[d], lo = size * part / parts, hi = size * (part + 1) / parts;
    box.offset[d] = lo, box.extent[d] = hi - lo;
    if (hi > lo) out.add(sample, box, filled);
  }
  return out;
}

}  // namespace mtrain::testing
