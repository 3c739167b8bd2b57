#include "mtrain/checkpoint/hf_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/quant_format.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/refuse.h"

namespace mtrain {
namespace {

using Method = HfQuantization::Method;

constexpr const char* kFp8Scales = "_scale_inv";
constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";
constexpr int64_t kGroup = 32;  // elements of MXFP4 with one scale
constexpr int64_t kGroupBytes = kGroup / 2;
constexpr int64_t kPiece = 1 << 18;  // elements that are read at once

constexpr const char* kFetchAgain =
    "fetch the folder again, or use one of the same model with bf16 weights";

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> out{};
    for (int code = 0; code < 256; ++code)
      out[static_cast<size_t>(code)] = decode_format<E4M3>(static_cast<uint8_t>(code));
    return out;
  }();
  return values;
}

const std::array<float, 16>& e2m1_values() {
  static const std::array<float, 16> values = [] {
    std::array<float, 16> out{};
    for (int code = 0; code < 16; ++code)
      out[static_cast<size_t>(code)] = decode_format<E2M1>(static_cast<uint8_t>(code));
    return out;
  }();
  return values;
}

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// Refuses the first key that is neither of `known` nor absent.
std::string unknown_key(const nlohmann::json& object, const std::set<std::string>& known) {
  for (const auto& [key, value] : object.items())
    if (!value.is_null() && !known.contains(key)) return key;
  return {};
}

HfQuantization faulty(std::string what, std::string fix) {
  return {.fault = std::move(what), .fix = std::move(fix)};
}

HfQuantization read_fp8(const nlohmann::json& object) {
  const auto format = object.find("fmt");
  if (format != object.end() && *format != "e4m3" && *format != "float8_e4m3fn" &&
      !format->is_null())
    return faulty(cat("quantization_config.fmt is ", printable(format->dump(), 60),
                      "; FP8 weights are read as e4m3"),
                  kFetchAgain);
  const auto block = object.find("weight_block_size");
  const bool pair = block != object.end() && block->is_array() && block->size() == 2 &&
                    std::all_of(block->begin(), block->end(), [](const nlohmann::json& n) {
                      return n.is_number_unsigned() && n > 0 && n <= (1 << 20);
                    });
  if (!pair)
    return faulty(cat("quantization_config.weight_block_size is ",
                      block == object.end() ? "missing" : printable(block->dump(), 60),
                      "; FP8 weights are read with a scale for each block of [rows, columns]"),
                  kFetchAgain);
  return {.method = Method::fp8,
          .block_rows = (*block)[0].get<int64_t>(),
          .block_columns = (*block)[1].get<int64_t>()};
}

}  // namespace

HfQuantization read_hf_quantization(const std::string& config_json) {
  const auto config = nlohmann::json::parse(config_json, nullptr, false);
  if (!config.is_object()) return {};
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return {};
  const std::string method =
      found->is_object() && found->contains("quant_method") && found->at("quant_method").is_string()
          ? found->at("quant_method").get<std::string>()
          : "";
  // Which modules have plain weights is seen in the weights; activations are not rounded here.
  std::set<std::string> known = {"quant_method",   "modules_to_not_convert", "dequantize",
                                 "ignored_layers", "activation_scheme",      "scale_fmt"};
  if (method != "fp8" && method != "mxfp4")
    return faulty(cat("quantization_config has quant_method ",
                      method.empty() ? "missing" : printable(method, 60),
                      "; quantized weights are read if it is fp8 or mxfp4"),
                  kFetchAgain);
  if (method == "fp8") known.insert({"fmt", "weight_block_size"});
  if (const std::string key = unknown_key(*found, known); !key.empty())
    return faulty(cat("quantization_config.", printable(key, 60), " is not known for ", method),
                  kFetchAgain);
  return method == "fp8" ? read_fp8(*found) : HfQuantization{.method = Method::mxfp4};
}

std::optional<DType> hf_config_dtype(const std::string& config_json) {
  if (read_hf_quantization(config_json).method != HfQuantization::Method::none) return DType::bf16;
  const auto json = nlohmann::json::parse(config_json, nullptr, false);
  for (const char* key : {"dtype", "torch_dtype"})
    if (json.is_object() && json.contains(key)) {
      if (json[key] == "bfloat16") return DType::bf16;
      if (json[key] == "float16") return DType::f16;
      if (json[key] == "float32") return DType::f32;
    }
  return std::nullopt;
}

HfWeights::HfWeights(const HfDir& folder) : folder_(folder) {
  quantization_ = read_hf_quantization(folder.text("config.json").value_or(""));
  const Method method = quantization_.method;
  for (const TensorInfo* t : folder.tensors()) {
    if (method == Method::fp8 && t->file_dtype == "F8_E4M3") {
      add_fp8(*t);
    } else if (method == Method::fp8 && t->name.ends_with(kFp8Scales)) {
      const std::string of = t->name.substr(0, t->name.size() - std::strlen(kFp8Scales));
      const TensorInfo* codes = folder.find(of);
      if (!codes || codes->file_dtype != "F8_E4M3")
        refuse(cat("tensor ", t->name, " is there, but ", of,
                   codes ? cat(" is ", codes->file_dtype, ", not F8_E4M3") : " is missing"));
    } else if (method == Method::mxfp4 && t->name.ends_with(kBlocks)) {
      add_mxfp4(*t);
    } else if (method == Method::mxfp4 && t->name.ends_with(kScales)) {
      const std::string of = t->name.substr(0, t->name.size() - std::strlen(kScales)) + kBlocks;
      if (!folder.find(of)) refuse(cat("tensor ", t->name, " is there, but ", of, " is missing"));
    } else {
      tensors_.push_back(t);
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  const auto twin = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const TensorInfo* a, const TensorInfo* b) { return a->name == b->name; });
  if (twin != tensors_.end())
    refuse(cat("tensor ", (*twin)->name, " is there twice: as it is, and quantized"));
}

void HfWeights::refuse(const std::string& what) const { refuse_file(path(), what, kFetchAgain); }

void HfWeights::add_fp8(const TensorInfo& codes) {
  const std::string scales_name = codes.name + kFp8Scales;
  const TensorInfo* scales = folder_.find(scales_name);
  if (!scales)
    refuse(cat("tensor ", codes.name, " is F8_E4M3, but its scales ", scales_name, " are missing"));
  const int rank = codes.shape.rank();
  if (rank < 2)
    refuse(cat("tensor ", codes.name, " ", codes.shape, " with the scales ", scales_name,
               " has fewer than two dimensions"));
  Shape wanted = codes.shape;
  wanted[rank - 2] = blocks_of(codes.shape[rank - 2], quantization_.block_rows);
  wanted[rank - 1] = blocks_of(codes.shape[rank - 1], quantization_.block_columns);
  if (!(scales->shape == wanted) || !scales->dtype || !is_floating(*scales->dtype))
    refuse(cat("tensor ", codes.name, " ", codes.shape, " in blocks of ", quantization_.block_rows,
               " by ", quantization_.block_columns, " needs scales ", wanted,
               " in a floating-point type, and ", scales_name, " is ", scales->shape, " of ",
               scales->file_dtype));
  made_.push_back({.name = codes.name,
                   .file_dtype = "BF16",
                   .dtype = DType::bf16,
                   .shape = codes.shape,
                   .offset = 0,
                   .data = {}});
  packed_[&made_.back()] = {&codes, scales};
  tensors_.push_back(&made_.back());
}

void HfWeights::add_mxfp4(const TensorInfo& codes) {
  const std::string name = codes.name.substr(0, codes.name.size() - std::strlen(kBlocks));
  const TensorInfo* scales = folder_.find(name + kScales);
  if (!scales)
    refuse(cat("tensor ", codes.name, " is there, but its scales ", name, kScales, " are missing"));
  if (codes.shape.rank() != 4 || codes.shape[3] != kGroupBytes || codes.file_dtype != "U8")
    refuse(cat("tensor ", codes.name, " ", codes.shape, " of ", codes.file_dtype,
               " with the scales ", scales->name, " must be [experts, rows, groups, ", kGroupBytes,
               "] of U8"));
  const Shape wanted{codes.shape[0], codes.shape[1], codes.shape[2]};
  if (!(scales->shape == wanted) || scales->file_dtype != "U8")
    refuse(cat("tensor ", codes.name, " ", codes.shape, " needs scales ", wanted, " of U8, and ",
               scales->name, " is ", scales->shape, " of ", scales->file_dtype));
  made_.push_back({.name = name,
                   .file_dtype = "BF16",
                   .dtype = DType::bf16,
                   .shape = Shape{codes.shape[0], codes.shape[2] * kGroup, codes.shape[1]},
                   .offset = 0,
                   .data = {}});
  packed_[&made_.back()] = {&codes, scales};
  tensors_.push_back(&made_.back());
}

const TensorInfo* HfWeights::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorInfo* t, std::string_view wanted) { return t->name < wanted; });
  return found != tensors_.end() && (*found)->name == name ? *found : nullptr;
}

void HfWeights::read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const {
  folder_.read(tensor, begin, out);
}

void HfWeights::floats(const TensorInfo& tensor, int64_t begin, std::span<float> out) const {
  const auto packed = packed_.find(&tensor);
  if (packed == packed_.end()) return plain(tensor, begin, out);
  if (quantization_.method == Method::fp8)
    fp8(packed->second, begin, out);
  else
    mxfp4(packed->second, begin, out);
}

std::vector<float> HfWeights::floats(const TensorInfo& tensor, int64_t begin, int64_t count) const {
  std::vector<float> out(static_cast<size_t>(count));
  floats(tensor, begin, out);
  return out;
}

void HfWeights::plain(const TensorInfo& t, int64_t begin, std::span<float> out) const {
  const auto count = std::ssize(out);
  std::vector<std::byte> bytes;
  auto convert = [&](auto tag) {
    using T = decltype(tag);
    for (int64_t done = 0; done < count; done += kPiece) {
      const auto size = static_cast<size_t>(std::min(kPiece, count - done));
      bytes.resize(size * sizeof(T));
      folder_.read(t, static_cast<uint64_t>(begin + done) * sizeof(T), bytes);
      float* to = out.data() + done;
      for (size_t i = 0; i < size; ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        if constexpr (std::is_same_v<T, double>)
          to[i] = static_cast<float>(value);
        else
          to[i] = to_float(value);
      }
    }
  };
  switch (*t.dtype) {
    case DType::f32:
      folder_.read(t, static_cast<uint64_t>(begin) * sizeof(float), std::as_writable_bytes(out));
      break;
    case DType::bf16:
      convert(bf16{});
      break;
    case DType::f16:
      convert(f16{});
      break;
    case DType::f64:
      convert(double{});
      break;
    default:
      MT_CHECK(false, name(*t.dtype));
  }
}

void HfWeights::fp8(const Packed& packed, int64_t begin, std::span<float> out) const {
  const Shape& shape = packed.codes->shape;
  const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  const int64_t across = blocks_of(columns, quantization_.block_columns);
  const int64_t down = blocks_of(rows, quantization_.block_rows);
  const auto count = static_cast<int64_t>(out.size());
  if (count == 0) return;
  // The scales of the rows of blocks that are needed.
  auto block_row = [&](int64_t row) {
    return row / rows * down + row % rows / quantization_.block_rows;
  };
  const int64_t first = block_row(begin / columns), last = block_row((begin + count - 1) / columns);
  std::vector<float> scales(static_cast<size_t>((last - first + 1) * across));
  plain(*packed.scales, first * across, scales);
  for (size_t i = 0; i < scales.size(); ++i)
    if (!std::isfinite(scales[i]) || scales[i] < 0)
      refuse(cat("tensor ", packed.codes->name, ": element ",
                 first * across + static_cast<int64_t>(i), " of its scales ", packed.scales->name,
                 " is ", scales[i], ", and must be finite and not negative"));
  const std::array<float, 256>& values = e4m3_values();
  std::vector<std::byte> codes;
  for (int64_t done = 0; done < count;) {
    const int64_t row = (begin + done) / columns, from = (begin + done) % columns;
    const int64_t size = std::min(count - done, columns - from);
    const float* scale = scales.data() + (block_row(row) - first) * across;
    codes.resize(static_cast<size_t>(size));
    folder_.read(*packed.codes, static_cast<uint64_t>(begin + done), codes);
    for (int64_t c = 0; c < size; ++c)
      out[static_cast<size_t>(done + c)] =
          values[std::to_integer<size_t>(codes[static_cast<size_t>(c)])] *
          scale[(from + c) / quantization_.block_columns];
    done += size;
  }
}

void HfWeights::mxfp4(const Packed& packed, int64_t begin, std::span<float> out) const {
  const Shape& shape = packed.codes->shape;
  const int64_t rows = shape[1], groups = shape[2], columns = groups * kGroup;
  const auto count = static_cast<int64_t>(out.size()), matrix = rows * columns;
  const std::array<float, 16>& values = e2m1_values();
  std::vector<std::byte> codes, scales;
  for (int64_t done = 0; done < count;) {
    const int64_t expert = (begin + done) / matrix, from = (begin + done) % matrix;
    const int64_t end = std::min(matrix, from + count - done);
    codes.resize(static_cast<size_t>(rows * groups * kGroupBytes));
    scales.resize(static_cast<size_t>(rows * groups));
    folder_.read(*packed.codes, static_cast<uint64_t>(expert) * codes.size(), codes);
    folder_.read(*packed.scales, static_cast<uint64_t>(expert) * scales.size(), scales);
    if (const auto bad = std::find(scales.begin(), scales.end(), std::byte{0xFF});
        bad != scales.end())
      refuse(cat("tensor ", packed.codes->name, ": element ",
                 expert * rows * groups + (bad - scales.begin()), " of its scales ",
                 packed.scales->name, " is 255, which stands for no number"));
    for (int64_t at = from; at < end; ++at) {  // column by column
      const int64_t column = at / rows, group = at % rows * groups + column / kGroup;
      const auto pair = std::to_integer<uint8_t>(
          codes[static_cast<size_t>(group * kGroupBytes + column % kGroup / 2)]);
      const uint8_t code = column % 2 == 0 ? pair & 0xF : pair >> 4;
      out[static_cast<size_t>(done + at - from)] =
          values[code] * decode_e8m0(std::to_integer<uint8_t>(scales[static_cast<size_t>(group)]));
    }
    done += end - from;
  }
}

}  // namespace mtrain
