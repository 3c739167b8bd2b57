// Quantized weights of Hugging Face folders: the values of each code and block, parts of a tensor,
// and what is refused. Golden values: tests/system/cli/hf_quantized_test.cc.
#include "mtrain/checkpoint/hf_weights.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "checkpoint_testing.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

struct Raw {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string floats_as_bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// A folder with tensors of any type, which the writer of this project does not write.
void put_folder(const TempDir& dir, const std::string& config, const std::vector<Raw>& tensors) {
  std::string header = "{", data;
  for (const Raw& t : tensors) {
    std::string shape;
    for (int64_t n : t.shape) shape += cat(shape.empty() ? "" : ",", n);
    header +=
        cat(header.size() > 1 ? "," : "", '"', t.name, "\":{\"dtype\":\"", t.type, "\",\"shape\":[",
            shape, "],\"data_offsets\":[", data.size(), ',', data.size() + t.bytes.size(), "]}");
    data += t.bytes;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string start(8, '\0');
  for (size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(header.size() >> (8 * i));
  put_file(dir / "config.json", config);
  put_file(dir / "model.safetensors", start + header + data);
}

const std::string kFp8 =
    R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[2,3]}})";
const std::string kMxfp4 = R"({"quantization_config":{"quant_method":"mxfp4"}})";

std::string refusal(const std::string& config, const std::vector<Raw>& tensors) {
  const TempDir dir;
  put_folder(dir, config, tensors);
  ErrorClass error_class{};
  const std::string message = failure(
      [&] {
        const HfDir folder(dir.path());
        const HfWeights weights(folder);
        for (const TensorInfo* t : weights.tensors())
          if (weights.is_quantized(*t)) weights.floats(*t, 0, t->shape.numel());
      },
      &error_class);
  CHECK((message.empty() || error_class == ErrorClass::checkpoint));
  return message;
}

bool names(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos) return false;
  return true;
}

}  // namespace

TEST_CASE("FP8: each element is its code times the scale of its block, also in cut-off blocks") {
  const TempDir dir;
  // 1.0, -2.0, 0.5, 448, 2^-9, -0 and their places in blocks of 2 by 3.
  const std::string row = {'\x38', '\xC0', '\x30', '\x7E', '\x01'};
  put_folder(dir, kFp8,
             {{"w.weight", "F8_E4M3", {3, 5}, row + row + row},
              {"w.weight_scale_inv", "F32", {2, 2}, floats_as_bytes({2, 10, 3, 0.5f})},
              {"norm", "F32", {2}, floats_as_bytes({7, 8})}});
  const HfDir folder(dir.path());
  const HfWeights weights(folder);
  REQUIRE(weights.tensors().size() == 2);
  const TensorInfo* w = weights.find("w.weight");
  REQUIRE(w);
  CHECK(weights.is_quantized(*w));
  CHECK(*w->dtype == DType::bf16);
  CHECK(w->shape == Shape{3, 5});
  CHECK(weights.find("w.weight_scale_inv") == nullptr);
  const float least = 1.0f / 512;
  const std::vector<float> all = {2,    -4,         1, 4480, 10 * least, 2,   -4,       1,
                                  4480, 10 * least, 3, -6,   1.5f,       224, least / 2};
  CHECK(weights.floats(*w, 0, 15) == all);
  for (int64_t begin = 0; begin < 15; ++begin)
    for (int64_t end = begin; end <= 15; ++end)
      CHECK(weights.floats(*w, begin, end - begin) ==
            std::vector<float>(all.begin() + begin, all.begin() + end));
  const TensorInfo* norm = weights.find("norm");
  REQUIRE(norm);
  CHECK_FALSE(weights.is_quantized(*norm));
  CHECK(weights.floats(*norm, 1, 1) == std::vector<float>{8});
}

TEST_CASE("MXFP4: the lower code of a byte is first, and the tensor is transposed") {
  const TempDir dir;
  // 2 experts, 2 rows, 1 group: row r of expert e has the codes (position + r + e) % 16.
  std::string blocks;
  std::vector<float> wanted(2 * 32 * 2);
  const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const int exponents[] = {0, 3, -4, -127};
  for (int e = 0; e < 2; ++e)
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 32; ++c) {
        const int code = (c + r + e) % 16;
        if (c % 2 == 0)
          blocks += static_cast<char>(code);
        else
          blocks.back() = static_cast<char>(blocks.back() | (code << 4));
        wanted[static_cast<size_t>((e * 32 + c) * 2 + r)] =
            std::ldexp((code & 8 ? -1.0f : 1.0f) * values[code & 7], exponents[e * 2 + r]);
      }
  std::string scales;
  for (int exponent : exponents) scales += static_cast<char>(127 + exponent);
  put_folder(dir, kMxfp4,
             {{"up_blocks", "U8", {2, 2, 1, 16}, blocks}, {"up_scales", "U8", {2, 2, 1}, scales}});
  const HfDir folder(dir.path());
  const HfWeights weights(folder);
  REQUIRE(weights.tensors().size() == 1);
  const TensorInfo& up = *weights.tensors()[0];
  CHECK(up.name == "up");
  CHECK(up.shape == Shape{2, 32, 2});
  CHECK(weights.floats(up, 0, 128) == wanted);
  for (int64_t begin : {0, 1, 63, 64, 100})
    for (int64_t count : {1, 7, 28})
      CHECK(weights.floats(up, begin, count) ==
            std::vector<float>(wanted.begin() + begin, wanted.begin() + begin + count));
}

TEST_CASE("scales that do not fit are refused with both names") {
  const Raw codes{"a.weight", "F8_E4M3", {2, 3}, std::string(6, '\x38')};
  const auto scales = [](std::vector<int64_t> shape, const std::vector<float>& values) {
    return Raw{"a.weight_scale_inv", "F32", std::move(shape), floats_as_bytes(values)};
  };
  const std::vector<std::string> both = {"tensor a.weight", "a.weight_scale_inv"};
  CHECK(refusal(kFp8, {codes, scales({1, 1}, {2})}).empty());
  auto refused = [&](const std::vector<Raw>& tensors, const std::string& part) {
    const std::string message = refusal(kFp8, tensors);
    CHECK_MESSAGE(names(message, both), message);
    CHECK_MESSAGE(names(message, {part}), message);
  };
  refused({codes}, "are missing");
  refused({codes, scales({1, 2}, {2, 2})}, "needs scales [1, 1]");
  refused({codes, scales({1}, {2})}, "needs scales [1, 1]");
  refused({codes, {"a.weight_scale_inv", "U8", {1, 1}, "x"}}, "of U8");
  refused({codes, scales({1, 1}, {std::numeric_limits<float>::infinity()})}, "is inf");
  refused({codes, scales({1, 1}, {std::nanf("")})}, "must be finite");
  refused({codes, scales({1, 1}, {-1})}, "is -1");
  refused({scales({1, 1}, {1}), {"a.weight", "F32", {1}, "abcd"}}, "not F8_E4M3");
  const std::string alone = refusal(kFp8, {scales({1, 1}, {1})});
  CHECK_MESSAGE(names(alone, {"a.weight_scale_inv", "a.weight is missing"}), alone);

  const Raw blocks{"x_blocks", "U8", {1, 1, 1, 16}, std::string(16, '\0')};
  auto mxfp4 = [&](const std::vector<Raw>& tensors, const std::string& part) {
    const std::string message = refusal(kMxfp4, tensors);
    CHECK_MESSAGE(names(message, {"x_blocks", "x_scales", part}), message);
  };
  CHECK(refusal(kMxfp4, {blocks, {"x_scales", "U8", {1, 1, 1}, "\x7f"}}).empty());
  mxfp4({blocks}, "are missing");
  mxfp4({{"x_scales", "U8", {1, 1, 1}, "\x7f"}}, "is missing");
  mxfp4({blocks, {"x_scales", "U8", {1, 1, 2}, "\x7f\x7f"}}, "needs scales [1, 1, 1]");
  mxfp4({blocks, {"x_scales", "F32", {1, 1, 1}, "abcd"}}, "of F32");
  mxfp4({{"x_blocks", "U8", {1, 1, 16}, std::string(16, '\0')}, {"x_scales", "U8", {1, 1}, "\x7f"}},
        "must be [experts, rows, groups, 16]");
  mxfp4({blocks, {"x_scales", "U8", {1, 1, 1}, "\xff"}}, "is 255");
  const std::string twice =
      refusal(kMxfp4, {blocks, {"x_scales", "U8", {1, 1, 1}, "\x7f"}, {"x", "F32", {1}, "abcd"}});
  CHECK_MESSAGE(names(twice, {"tensor x is there twice"}), twice);
}

TEST_CASE("a quantization that is not known is named, and tensors then are as they are stored") {
  auto fault = [](const std::string& config) {
    return read_hf_quantization("{\"quantization_config\":" + config + "}").fault;
  };
  CHECK(read_hf_quantization("{}").fault.empty());
  CHECK(read_hf_quantization(kMxfp4).method == HfQuantization::Method::mxfp4);
  CHECK(read_hf_quantization(kFp8).block_columns == 3);
  CHECK(names(fault(R"({"quant_method":"gptq","bits":4})"), {"gptq", "fp8 or mxfp4"}));
  CHECK(names(fault("5"), {"quant_method missing"}));
  CHECK(names(fault(R"({"quant_method":"fp8"})"), {"weight_block_size is missing"}));
  for (const char* size : {"[128]", "[0,128]", "[-1,128]", "128", "[1.5,2]", "[9999999999,1]"})
    CHECK(names(fault(std::string(R"({"quant_method":"fp8","weight_block_size":)") + size + "}"),
                {"weight_block_size is "}));
  CHECK(names(fault(R"({"quant_method":"fp8","fmt":"e5m2","weight_block_size":[1,1]})"),
              {"e5m2", "e4m3"}));
  CHECK(names(fault(R"({"quant_method":"mxfp4","rotation":true})"), {"rotation", "mxfp4"}));
  const TempDir dir;
  put_folder(dir, R"({"quantization_config":{"quant_method":"gptq"}})",
             {{"a.weight", "F8_E4M3", {2, 3}, std::string(6, '\x38')}});
  const HfDir folder(dir.path());
  const HfWeights weights(folder);
  CHECK_FALSE(weights.find("a.weight")->dtype);
}
