// Codes of frozen weights against bitsandbytes' own, of 10,000 blocks (qlora_generate.py).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/hash.h"
#include "mtrain/nn/encode_weight.h"
#include "roots.h"

using namespace mtrain;

namespace {

constexpr int64_t kBlocks = 10000, kRow = 640;

nlohmann::json golden_codes() {
  return nlohmann::json::parse(
      std::ifstream(testing::source_root() / "tests/golden/qlora/codes.json"));
}

template <class T>
std::string digest(const std::vector<T>& values) {
  return sha256(std::as_bytes(std::span(values)));
}

uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// As qlora_generate.py makes them.
std::vector<float> numbers() {
  std::vector<float> x(kBlocks * kNf4Block);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t u = mixed(i), block = i / kNf4Block;
    int64_t total = -131070;
    for (int shift : {0, 16, 32, 48}) total += static_cast<int64_t>(u >> shift & 0xFFFF);
    const int exponent = static_cast<int>(mixed(block + (uint64_t{1} << 40)) % 8) - 21;
    x[i] = std::ldexp(static_cast<float>(total), exponent);
  }
  std::fill_n(x.begin() + 3 * kNf4Block, kNf4Block, 0.0f);
  float* middles = x.data() + 4 * kNf4Block;
  middles[0] = 1;
  for (int i = 0; i < 15; ++i) middles[i + 1] = (kNf4Values.of[i] + kNf4Values.of[i + 1]) / 2;
  return x;
}

struct Nf4 {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};
Nf4 encoded(const std::vector<float>& x) {
  Nf4 out{std::vector<uint8_t>(x.size() / 2), std::vector<float>(kBlocks)};
  for (int64_t b = 0; b < kBlocks; ++b)
    out.scales[static_cast<size_t>(b)] =
        encode_nf4_block(x.data() + b * kNf4Block, out.codes.data() + b * kNf4Block / 2);
  return out;
}

std::vector<float> decoded(const std::vector<uint8_t>& codes, const std::vector<float>& scales) {
  std::vector<float> out;
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scale = scales[i / (kNf4Block / 2)];
    out.push_back(kNf4Values.of[codes[i] >> 4] * scale);
    out.push_back(kNf4Values.of[codes[i] & 15] * scale);
  }
  return out;
}

}  // namespace

TEST_CASE("NF4: codes, scales and values of 10,000 blocks are those of bitsandbytes") {
  const nlohmann::json want = golden_codes();
  const std::vector<float> x = numbers();
  REQUIRE(digest(x) == want.at("values").get<std::string>());
  const Nf4 got = encoded(x);
  std::string first;
  for (size_t i = 0; i < 64; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    first += kDigits[got.codes[i] >> 4], first += kDigits[got.codes[i] & 15];
  }
  CHECK(first == want.at("nf4").at("first").get<std::string>());
  CHECK(digest(got.codes) == want.at("nf4").at("codes").get<std::string>());
  CHECK(digest(got.scales) == want.at("nf4").at("scales").get<std::string>());
  CHECK(digest(decoded(got.codes, got.scales)) == want.at("nf4").at("values").get<std::string>());
}

TEST_CASE("scales as codes are those of bitsandbytes") {
  const nlohmann::json want = golden_codes().at("nested");
  const Nf4 weight = encoded(numbers());
  const auto offset = want.at("offset").get<float>();
  // torch sums floats in another order.
  CHECK(encode_scales(weight.scales).offset == doctest::Approx(offset).epsilon(3e-7));
  const ScaleCodes got = encode_scales(weight.scales, offset);
  CHECK(digest(got.codes) == want.at("codes").get<std::string>());
  CHECK(digest(got.factors) == want.at("factors").get<std::string>());
  std::vector<float> scales;
  for (size_t i = 0; i < got.codes.size(); ++i)
    scales.push_back(decoded_scale(kScaleCodeValues, got.codes[i],
                                   got.factors[i / static_cast<size_t>(kScaleGroup)], offset));
  CHECK(digest(scales) == want.at("scales").get<std::string>());
  CHECK(digest(decoded(weight.codes, scales)) == want.at("values").get<std::string>());
}

TEST_CASE("INT8: codes, scales and values are those of bitsandbytes") {
  const nlohmann::json want = golden_codes().at("int8");
  const std::vector<float> x = numbers();
  std::vector<uint8_t> codes(x.size());
  std::vector<float> scales, values;
  for (size_t begin = 0; begin < x.size(); begin += kRow) {
    const std::span<const float> row(x.data() + begin, kRow);
    const float largest = largest_of(row);
    encode_row(WeightFormat::int8, row, largest, codes.data() + begin);
    scales.push_back(row_scale(WeightFormat::int8, largest));
    for (size_t i = 0; i < kRow; ++i) values.push_back(int8_value(codes[begin + i], scales.back()));
  }
  CHECK(digest(codes) == want.at("codes").get<std::string>());
  CHECK(digest(scales) == want.at("scales").get<std::string>());
  CHECK(digest(values) == want.at("values").get<std::string>());
}
