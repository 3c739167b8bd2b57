#include "mtrain/nn/init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace mtrain {
namespace {

std::vector<float> filled(const Init& init, uint64_t seed, std::string_view name, size_t count,
                          uint64_t first = 0) {
  std::vector<float> values(count, -7);
  fill(init, seed, name, values, first);
  return values;
}

TEST_CASE("init: chunks give what the whole gives, whatever their size") {
  constexpr size_t kCount = 200'003;  // more than one thread's share
  std::vector<float> whole = filled(Init::normal(0.02f), 42, "layers.0.weight", kCount);
  for (size_t chunk : {size_t{1009}, size_t{65'536}, size_t{65'537}, size_t{131'072}}) {
    std::vector<float> parts;
    for (size_t at = 0; at < kCount; at += chunk) {
      auto part =
          filled(Init::normal(0.02f), 42, "layers.0.weight", std::min(chunk, kCount - at), at);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("init: values depend on seed and name and nothing else") {
  auto base = filled(Init::normal(1), 1, "a", 100);
  CHECK(filled(Init::normal(1), 1, "a", 100) == base);
  CHECK(filled(Init::normal(1), 2, "a", 100) != base);
  CHECK(filled(Init::normal(1), 1, "b", 100) != base);
}

TEST_CASE("init: normal values have the mean, deviation and tails of a normal distribution") {
  constexpr size_t kCount = 400'000;
  constexpr double kStd = 0.02;
  std::vector<float> values = filled(Init::normal(static_cast<float>(kStd)), 3, "w", kCount);
  double sum = 0, squares = 0, fourth = 0;
  size_t beyond = 0;
  for (float v : values) {
    double z = static_cast<double>(v) / kStd;
    sum += z, squares += z * z, fourth += z * z * z * z;
    beyond += std::fabs(z) > 2;
  }
  double n = kCount;
  CHECK(std::fabs(sum / n) < 4 / std::sqrt(n));
  CHECK(std::fabs(squares / n - 1) < 4 * std::sqrt(2 / n));
  CHECK(std::fabs(fourth / n - 3) < 4 * std::sqrt(96 / n));
  CHECK(std::fabs(static_cast<double>(beyond) / n - 0.0455003) < 4 * std::sqrt(0.0455 / n));
}

TEST_CASE("init: constants, and nothing to fill") {
  CHECK(filled(Init::zeros(), 1, "w", 3) == std::vector<float>{0, 0, 0});
  CHECK(filled(Init::ones(), 1, "w", 3) == std::vector<float>{1, 1, 1});
  CHECK(filled(Init::normal(1), 1, "w", 0).empty());
}

TEST_CASE("init: uniform values have the bound, mean and deviation of a uniform distribution") {
  constexpr size_t kCount = 200'000;
  double sum = 0, squares = 0, most = 0;
  for (float v : filled(Init::uniform(0.5f), 3, "w", kCount)) {
    sum += double{v}, squares += double{v} * double{v};
    most = std::max(most, std::fabs(double{v}));
  }
  CHECK(most <= 0.5);
  CHECK(most > 0.499);
  CHECK(std::fabs(sum / kCount) < 3e-3);
  CHECK(squares / kCount == doctest::Approx(0.25 / 3).epsilon(0.01));
}

}  // namespace
}  // namespace mtrain
