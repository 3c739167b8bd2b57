// FP8, FP4 and e8m0 against ml_dtypes (tests/golden/quant_formats_generate.py), and against their
// own tables.
#include "mtrain/base/quant_format.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mtrain/base/rng.h"
#include "roots.h"

namespace mtrain {
namespace {

nlohmann::json golden(const std::string& name) {
  std::ifstream file(testing::source_root() / "tests/golden/quant_formats" / (name + ".json"));
  REQUIRE(file);
  return nlohmann::json::parse(file);
}

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// As the generator makes them.
float value(uint64_t word, int lowest, int highest) {
  auto exponent = static_cast<uint32_t>(
      lowest + static_cast<int>((word >> 40) % static_cast<uint64_t>(highest - lowest + 1)) + 127);
  auto fraction = static_cast<uint32_t>(word & 0x7FFFFF);
  if ((word >> 32) % 4 == 0) fraction &= ~0x7FFFFu;
  return std::bit_cast<float>(static_cast<uint32_t>((word >> 31) & 1) << 31 | exponent << 23 |
                              fraction);
}

template <class F>
void check_against_golden(const char* name) {
  CAPTURE(name);
  nlohmann::json file = golden(name);
  auto decoded = file.at("decoded").get<std::vector<uint32_t>>();
  REQUIRE(decoded.size() == 1u << F::kBits);
  for (size_t code = 0; code < decoded.size(); ++code) {
    CAPTURE(code);
    float expected = std::bit_cast<float>(decoded[code]),
          got = decode_format<F>(static_cast<uint8_t>(code));
    if (std::isnan(expected))
      CHECK(std::isnan(got));
    else
      CHECK(std::bit_cast<uint32_t>(got) == decoded[code]);
  }
  auto hex = file.at("codes").get<std::string>();
  int lowest = file.at("exponents")[0], highest = file.at("exponents")[1];
  REQUIRE(hex.size() == 20000);
  uint64_t state = 0;
  int64_t wrong = 0;
  for (size_t i = 0; i < 10000; ++i) {
    float x = value(splitmix64(state), lowest, highest), rounded = round_to_format<F>(x);
    auto expected = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    if (encode_format<F>(rounded) != expected && wrong++ < 5)
      FAIL_CHECK(x, " became ", rounded, ", not ", decode_format<F>(expected));
  }
  CHECK(wrong == 0);
}

template <class F>
void check_every_code() {
  std::vector<float> values;
  for (int code = 0; code < 1 << F::kBits; ++code) {
    float v = decode_format<F>(static_cast<uint8_t>(code));
    CAPTURE(code);
    if (!std::isfinite(v)) continue;
    CHECK(std::bit_cast<uint32_t>(round_to_format<F>(v)) == std::bit_cast<uint32_t>(v));
    CHECK(encode_format<F>(v) == code);
    CHECK(static_cast<float>(bf16(v)) == v);
    if (code < 1 << (F::kBits - 1)) values.push_back(v);
  }
  // Between neighbours: nearest, halves to the even code, and a draw that keeps the mean.
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    float a = values[i], b = values[i + 1], half = (a + b) / 2;
    CAPTURE(a);
    CHECK(a < b);
    CHECK(round_to_format<F>(std::nextafter(half, a)) == a);
    CHECK(round_to_format<F>(std::nextafter(half, b)) == b);
    CHECK(round_to_format<F>(half) == (i % 2 == 0 ? a : b));
    float quarter = a + (b - a) / 4;
    CHECK(round_to_format_stochastic<F>(quarter, 0.24f) == b);
    CHECK(round_to_format_stochastic<F>(quarter, 0.25f) == a);
    CHECK(round_to_format_stochastic<F>(-quarter, 0.24f) == -b);
    CHECK(round_to_format_stochastic<F>(a, 0.0f) == a);
  }
  CHECK(values.back() == F::kMax);
  CHECK(round_to_format<F>(1e30f) == F::kMax);
  CHECK(round_to_format<F>(-1e30f) == -F::kMax);
  CHECK(round_to_format_stochastic<F>(1e30f, 0.0f) == F::kMax);
  CHECK(std::signbit(round_to_format<F>(-1e-30f)));
}

}  // namespace

TEST_CASE("e4m3, e5m2 and e2m1 equal ml_dtypes, code by code and over 10,000 floats") {
  check_against_golden<E4M3>("e4m3");
  check_against_golden<E5M2>("e5m2");
  check_against_golden<E2M1>("e2m1");
}

TEST_CASE(
    "every value of an FP8 or FP4 type is its own nearest, and what lies between goes to the "
    "nearer") {
  check_every_code<E4M3>();
  check_every_code<E5M2>();
  check_every_code<E2M1>();
}

TEST_CASE("what is not finite stays so where the type can say it") {
  CHECK(std::isnan(round_to_format<E4M3>(INFINITY)));
  CHECK(std::isnan(round_to_format<E4M3>(NAN)));
  CHECK(encode_format<E4M3>(round_to_format<E4M3>(NAN)) == 0x7F);
  CHECK(encode_format<E4M3>(round_to_format<E4M3>(-INFINITY)) == 0xFF);
  CHECK(round_to_format<E5M2>(-INFINITY) == -INFINITY);
  CHECK(encode_format<E5M2>(INFINITY) == 0x7C);
  CHECK(std::isnan(round_to_format<E5M2>(NAN)));
  CHECK(encode_format<E5M2>(round_to_format<E5M2>(NAN)) == 0x7E);
  CHECK(round_to_format<E2M1>(INFINITY) == 6);
}

TEST_CASE("e8m0 equals ml_dtypes, and rounds up") {
  auto decoded = golden("e8m0").at("decoded").get<std::vector<uint32_t>>();
  REQUIRE(decoded.size() == 256);
  for (size_t code = 0; code < 255; ++code) {
    CAPTURE(code);
    CHECK(std::bit_cast<uint32_t>(decode_e8m0(static_cast<uint8_t>(code))) == decoded[code]);
    float v = decode_e8m0(static_cast<uint8_t>(code));
    CHECK(encode_e8m0_up(v) == code);
    CHECK(encode_e8m0_up(std::nextafter(v, INFINITY)) == std::min<size_t>(254, code + 1));
  }
  CHECK(std::isnan(decode_e8m0(255)));
  CHECK(encode_e8m0_up(INFINITY) == 255);
  CHECK(encode_e8m0_up(NAN) == 255);
}

TEST_CASE("stochastic rounding keeps the mean") {
  RngStream random(1, "draws");
  for (float x : {0.1f, 0.6f, 1.3f, 2.7f, 4.1f, -5.5f}) {
    double sum = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i)
      sum += static_cast<double>(
          round_to_format_stochastic<E2M1>(x, random.uniform(static_cast<uint64_t>(i))));
    CHECK(sum / kDraws == doctest::Approx(x).epsilon(0.02));
  }
}

}  // namespace mtrain
