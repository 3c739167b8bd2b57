// Adapters: the norms of w + s·b·a without that sum, and layers with magnitudes.
#include "mtrain/nn/adapter.h"

#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"
#include "mtrain/nn/layers.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kIn = 40, kOut = 24, kRank = 3, kAdapterTokens = 5;

/// A layer with two matrices of 8 and 16 rows, whose rows alternate in groups of 4, 8, ….
struct Shop {
  Shop(std::vector<std::string> targets, DType dtype, float dropout = 0)
      : plan({.rank = kRank,
              .alpha = 1.5 * kRank,
              .b_std = 0.5f,
              .dropout = dropout,
              .magnitudes = true,
              .targets = std::move(targets),
              .exclude = {},
              .train = {}}),
        settings{.ctx = lab.context(), .parameters = list, .dtype = dtype, .adapters = &plan},
        layer(Scope(settings) / "lin", {"out", kOut}, {"in", kIn},
              {.init_std = 0.3f,
               .bias = true,
               .matrices = {{"q", {{0, 4}, {12, 4}}, kIn}, {"k", {{4, 8}, {16, 8}}, kIn}}}) {}
  Values value(const char* name) { return values_of(list.find(name)->value); }
  /// w + s · b · a of this layer; `adapted`: which of its matrices have adapters.
  Values sum(const std::vector<bool>& adapted) {
    Values w = value("lin.weight");
    const Values a = value("lin.lora_a"), b = value("lin.lora_b");
    for (int64_t row = 0; row < kOut; ++row) {
      const size_t m = row % 12 < 4 ? 0 : 1;
      if (!adapted[m]) continue;
      const int64_t block = m == 1 && adapted[0] ? 1 : 0;
      for (int64_t k = 0; k < kRank; ++k)
        for (int64_t c = 0; c < kIn; ++c)
          w[static_cast<size_t>(row * kIn + c)] +=
              1.5 * b[static_cast<size_t>(row * kRank + k)] *
              a[static_cast<size_t>((block * kRank + k) * kIn + c)];
    }
    return w;
  }
  Fixture lab;
  ParamList list;
  AdapterPlan plan;
  BuildSettings settings;
  Linear layer;
};

double norm_of(const Values& w, int64_t row) {
  double squares = 0;
  for (int64_t c = 0; c < kIn; ++c) squares += std::pow(w[static_cast<size_t>(row * kIn + c)], 2);
  return std::sqrt(squares);
}

TEST_CASE("layers with magnitudes: rows of w + s·b·a with trained norms") {
  struct Row {
    std::vector<std::string> targets;
    std::vector<bool> adapted;
  };
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Row& row : {Row{{"lin"}, {true, true}}, Row{{"lin.q"}, {true, false}},
                           Row{{"lin.k"}, {false, true}}}) {
      CAPTURE(row.targets[0]);
      CAPTURE(name(dtype));
      Shop shop(row.targets, dtype);
      Parameter& change = *shop.list.find("lin.lora_magnitude");
      CHECK_FALSE(change.decay);
      std::vector<float> changes(kOut);
      for (size_t i = 0; i < changes.size(); ++i) changes[i] = 0.125f * static_cast<float>(i % 4);
      change.value.context().upload(change.master, changes.data());
      if (dtype != DType::f32) change.value.context().copy(change.value, change.master);
      const Values w = shop.value("lin.weight"), sum = shop.sum(row.adapted),
                   bias = shop.value("lin.bias");
      const Tensor x = make(shop.lab.context(), random_values(kAdapterTokens * kIn, "x"),
                            {kAdapterTokens, kIn}, dtype);
      const Values in = values_of(x), y = values_of(shop.layer(x));
      const double roundoff = dtype == DType::f32 ? 1e-6 : 0.02;
      for (int64_t t = 0; t < kAdapterTokens; ++t)
        for (int64_t n = 0; n < kOut; ++n) {
          double dot = 0;
          for (int64_t c = 0; c < kIn; ++c)
            dot += in[static_cast<size_t>(t * kIn + c)] * sum[static_cast<size_t>(n * kIn + c)];
          const double gain =
              row.adapted[n % 12 < 4 ? 0 : 1]
                  ? (norm_of(w, n) + changes[static_cast<size_t>(n)]) / norm_of(sum, n)
                  : 1;
          const double want = gain * dot + bias[static_cast<size_t>(n)];
          CHECK(std::fabs(y[static_cast<size_t>(t * kOut + n)] - want) <=
                roundoff * (2 + std::fabs(want)));
        }
    }
}

TEST_CASE("norms of w + s·b·a agree with those of the sum to float's precision") {
  Shop shop({"lin"}, DType::f32);
  const Values sum = shop.sum({true, true}), w = shop.value("lin.weight");
  // The gain of a column of ones: the norms themselves.
  const Tensor x = make(shop.lab.context(), Values(kIn, 1.0), {1, kIn}, DType::f32);
  GradMode off(shop.lab.context(), false);
  const Values y = values_of(shop.layer(x)), bias = shop.value("lin.bias");
  double worst = 0;
  for (int64_t n = 0; n < kOut; ++n) {
    double dot = 0;
    for (int64_t c = 0; c < kIn; ++c) dot += sum[static_cast<size_t>(n * kIn + c)];
    const double got = (y[static_cast<size_t>(n)] - bias[static_cast<size_t>(n)]) / dot,
                 want = norm_of(w, n) / norm_of(sum, n);
    worst = std::max(worst, std::fabs(got / want - 1) * std::min(1.0, std::fabs(dot)));
  }
  CHECK(worst < 2e-6);
}

TEST_CASE("dropout of a layer with magnitudes: only what the adapter changes sees it") {
  Shop shop({"lin"}, DType::f32, 0.5f);
  ExecutionContext& ctx = shop.lab.context();
  const Tensor x =
      make(ctx, random_values(kAdapterTokens * kIn, "x"), {kAdapterTokens, kIn}, DType::f32);
  const Tensor y = shop.layer(x);
  // x wᵀ + bias + (gain - 1) (d wᵀ) + gain s (d aᵀ) bᵀ with d = dropout(x).
  const Tensor d = dropout(x, 0.5f, name_key("lin.lora_dropout"));
  const Values w = shop.value("lin.weight"), sum = shop.sum({true, true}), in = values_of(x),
               dropped = values_of(d), bias = shop.value("lin.bias"), got = values_of(y);
  for (int64_t t = 0; t < kAdapterTokens; ++t)
    for (int64_t n = 0; n < kOut; ++n) {
      const double gain = norm_of(w, n) / norm_of(sum, n);
      double want = bias[static_cast<size_t>(n)];
      for (int64_t c = 0; c < kIn; ++c) {
        const auto i = static_cast<size_t>(t * kIn + c), j = static_cast<size_t>(n * kIn + c);
        want += in[i] * w[j] + dropped[i] * (gain * sum[j] - w[j]);
      }
      CHECK(got[static_cast<size_t>(t * kOut + n)] == doctest::Approx(want).epsilon(1e-5));
    }
}

TEST_CASE("targets match names within blocks, matrices and whole paths; experts only by name") {
  const std::vector<LogicalMatrix> matrices = {{"q", {{0, 4}}, 8}, {"v", {{4, 4}}, 8}};
  AdapterPlan plan({.rank = 2,
                    .targets = {"layers.1.*", "q_proj", "mlp.*", "no.such"},
                    .exclude = {"layers.1.attn.qkv.v"},
                    .train = {}});
  CHECK(plan.matrices_of("layers.0.attn.qkv", matrices) == std::vector<size_t>{0});
  CHECK(plan.matrices_of("layers.1.attn.qkv", matrices) == std::vector<size_t>{0});
  CHECK(plan.matrices_of("layers.1.attn.out", {{"", {{0, 8}}, 8}}) == std::vector<size_t>{0});
  CHECK(plan.matrices_of("layers.0.attn.out", {{"", {{0, 8}}, 8}}).empty());
  CHECK_FALSE(plan.adapts_experts("layers.0.mlp.experts.up"));
  std::vector<std::string> unmatched;
  for (const auto& [list, pattern] : plan.unmatched()) unmatched.push_back(list + " " + pattern);
  CHECK(unmatched == std::vector<std::string>{"targets mlp.*", "targets no.such"});
  AdapterPlan named({.rank = 2, .targets = {"mlp.experts.*"}, .exclude = {}, .train = {}});
  CHECK(named.adapts_experts("layers.0.mlp.experts.up"));
  CHECK(named.num_adapters() == 1);
}

TEST_CASE("adapters of experts: one for each, or one for all") {
  constexpr int64_t kExperts = 3;
  for (bool shared : {false, true}) {
    CAPTURE(shared);
    Fixture lab;
    ParamList list;
    AdapterPlan plan({.rank = kRank,
                      .alpha = 0.5 * kRank,
                      .b_std = 0.5f,
                      .share_experts = shared,
                      .targets = {"experts"},
                      .exclude = {},
                      .train = {}});
    BuildSettings settings{.ctx = lab.context(), .parameters = list, .adapters = &plan};
    const Scope scope = Scope(settings) / "experts";
    Parameter& weight = scope.param("weight", {{"experts", kExperts}, {"out", 6}, {"in", 8}},
                                    Init::normal(0.5f), true, ParamRole::expert_matrix);
    const auto adapter = ExpertAdapter::of(scope, weight);
    REQUIRE(adapter);
    CHECK_FALSE(weight.trained);
    CHECK(list.find("experts.lora_a")->global == Shape{shared ? 1 : kExperts, kRank, 8});
    const std::vector<int64_t> counts = {2, 0, 3};
    const RowCounts rows = std::make_shared<const std::vector<int64_t>>(counts);
    const Tensor x = make(lab.context(), random_values(5 * 8, "x"), {5, 8}, DType::f32),
                 y = make(lab.context(), random_values(5 * 6, "y"), {5, 6}, DType::f32);
    const Values a = values_of(list.find("experts.lora_a")->value),
                 b = values_of(list.find("experts.lora_b")->value), in = values_of(x),
                 base = values_of(y), got = values_of(adapter->add_to(y, x, rows));
    for (size_t t = 0; t < 5; ++t)
      for (size_t n = 0; n < 6; ++n) {
        const size_t e = shared ? 0 : t < 2 ? 0 : 2;
        double want = base[t * 6 + n];
        for (size_t k = 0; k < kRank; ++k)
          for (size_t c = 0; c < 8; ++c)
            want += 0.5 * b[(e * 6 + n) * kRank + k] * a[(e * kRank + k) * 8 + c] * in[t * 8 + c];
        CHECK(got[t * 6 + n] == doctest::Approx(want).epsilon(1e-5));
      }
  }
}

TEST_CASE(
    "patterns give matrices other ranks and factors; what pads them is zeros and not counted") {
  Fixture lab;
  ParamList list;
  AdapterPlan plan({.rank = 4,
                    .alpha = 8,
                    .ranks = {{"lin.q", 2}, {"lin.*", 3}},
                    .alphas = {{"lin.k", 6}},
                    .b_std = 0.5f,
                    .gaussian = true,
                    .targets = {"*"}});
  CHECK(plan.size_of("lin", "q") == AdapterSize{2, 8, 4});
  CHECK(plan.size_of("lin", "k") == AdapterSize{3, 6, 2});
  CHECK(plan.size_of("other", "") == AdapterSize{4, 8, 2});
  BuildSettings settings{.ctx = lab.context(), .parameters = list, .adapters = &plan};
  const Linear layer(Scope(settings) / "lin", {"out", kOut}, {"in", kIn},
                     {.matrices = {{"q", {{0, 8}}, kIn}, {"k", {{8, 16}}, kIn}}});
  const Parameter &a = *list.find("lin.lora_a"), &b = *list.find("lin.lora_b");
  CHECK(a.global == Shape{6, kIn});
  CHECK(b.global == Shape{kOut, 3});
  CHECK(a.unused == kIn);
  CHECK(b.unused == 8);
  const Values of_a = values_of(a.value), of_b = values_of(b.value);
  for (int64_t i = 0; i < a.global.numel(); ++i)
    CHECK((of_a[static_cast<size_t>(i)] == 0) == (i / kIn == 2));
  for (int64_t i = 0; i < b.global.numel(); ++i)
    CHECK((of_b[static_cast<size_t>(i)] == 0) == (i < 24 && i % 3 == 2));
}

}  // namespace
}  // namespace mtrain
