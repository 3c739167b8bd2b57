#include "mtrain/nn/rope_table.h"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "contract/harness.h"

namespace mtrain {
namespace {

using contract::Fixture;
using contract::values_of;

TEST_CASE("rope table: cos and sin of position times theta^(-2i/d)") {
  Fixture lab;
  for (int64_t dim : {2, 8, 64}) {
    constexpr int64_t kPositions = 40;
    RopeTable table = make_rope_table(lab.context(), {}, kPositions, dim);
    CHECK(table.cos.shape() == Shape{kPositions, dim / 2});
    CHECK(table.sin.shape() == table.cos.shape());
    auto cos = values_of(table.cos), sin = values_of(table.sin);
    for (int64_t p = 0; p < kPositions; ++p)
      for (int64_t i = 0; i < dim / 2; ++i) {
        double angle = static_cast<double>(p) /
                       std::pow(10000.0, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
        auto at = static_cast<size_t>(p * dim / 2 + i);
        CHECK(std::fabs(cos[at] - std::cos(angle)) < 1e-7);
        CHECK(std::fabs(sin[at] - std::sin(angle)) < 1e-7);
      }
  }
}

// Frequencies of Llama 3.1 (theta 500000, head dim 128, factor 8, low 1, high 4, original context
// 8192), computed apart.
const std::pair<int64_t, double> kLlama31[] = {{0, 1.0},
                                               {1, 0.8146172338565447},
                                               {16, 0.03760603093086393},
                                               {28, 0.003211445994752591},
                                               {29, 0.002166570763503359},
                                               {30, 0.0013718935677611381},
                                               {32, 0.0005248461609929547},
                                               {34, 0.0001785078127679964},
                                               {35, 9.556212353964683e-05},
                                               {36, 7.78465527393245e-05},
                                               {40, 3.428102195952591e-05},
                                               {63, 3.068925988914511e-07}};

TEST_CASE("rope table: Llama 3.1 keeps high frequencies, divides low ones and blends between") {
  Fixture lab;
  RopeConfig config;
  config.theta = 500000;
  config.scaling = "llama3";
  RopeTable table =
      make_rope_table(lab.context(), config, 2, 128);  // row 1 holds the frequencies' own sines
  auto sin = values_of(table.sin), cos = values_of(table.cos);
  for (auto [i, frequency] : kLlama31) {
    INFO("frequency ", i);
    auto at = static_cast<size_t>(64 + i);
    CHECK(std::fabs(sin[at] / std::sin(frequency) - 1) < 1e-6);
    CHECK(std::fabs(cos[at] - std::cos(frequency)) < 1e-7);
  }
}

TEST_CASE("rope table: angles of far positions keep their precision") {
  Fixture lab;
  constexpr int64_t kPositions = 131'072;
  RopeTable table = make_rope_table(lab.context(), {}, kPositions, 4);
  auto cos = values_of(table.cos), sin = values_of(table.sin);
  for (int64_t p : {99'991, 131'071}) {
    auto at = static_cast<size_t>(p * 2);
    CHECK(std::fabs(cos[at] - std::cos(static_cast<double>(p))) < 1e-7);
    CHECK(std::fabs(sin[at + 1] - std::sin(static_cast<double>(p) / 100)) < 1e-7);
  }
}

}  // namespace
}  // namespace mtrain
