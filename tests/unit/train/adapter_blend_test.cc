// Adapters that are combined: the values of peft, the exact sum, and what is refused.
#include "mtrain/train/adapter_blend.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "roots.h"

using namespace mtrain;

namespace {

constexpr int64_t kOut = 5, kIn = 7;

PeftModule module_of(std::vector<float> a, std::vector<float> b, int64_t rank, double alpha,
                     const std::string& name = "proj") {
  return {.weight = name + ".weight",
          .out = kOut,
          .in = kIn,
          .rank = rank,
          .alpha = alpha,
          .scale = alpha / static_cast<double>(rank),
          .a = std::move(a),
          .b = std::move(b)};
}

PeftAdapter adapter_of(PeftModule module) {
  PeftAdapter out{.modules = {}, .rank = module.rank, .alpha = module.alpha};
  out.modules.push_back(std::move(module));
  return out;
}

/// Elements that no generator has drawn: different for each `from`.
PeftModule some_module(int64_t rank, float from, const std::string& name = "proj") {
  std::vector<float> a, b;
  for (int64_t i = 0; i < rank * kIn; ++i) a.push_back(std::sin(from + static_cast<float>(i)));
  for (int64_t i = 0; i < rank * kOut; ++i) b.push_back(std::cos(from * static_cast<float>(i + 1)));
  return module_of(std::move(a), std::move(b), rank, 4, name);
}

/// scale · b · a.
std::vector<double> change(const PeftModule& m) {
  std::vector<double> out(static_cast<size_t>(kOut * kIn));
  for (int64_t i = 0; i < kOut; ++i)
    for (int64_t j = 0; j < kIn; ++j)
      for (int64_t r = 0; r < m.rank; ++r)
        out[static_cast<size_t>(i * kIn + j)] +=
            m.scale * static_cast<double>(m.b[static_cast<size_t>(i * m.rank + r)]) *
            static_cast<double>(m.a[static_cast<size_t>(r * kIn + j)]);
  return out;
}

const std::map<std::string, AdapterBlend> kMethods = {
    {"cat", AdapterBlend::cat}, {"linear", AdapterBlend::linear}, {"ties", AdapterBlend::ties}};

}  // namespace

TEST_CASE("adapters are combined as in peft") {
  std::ifstream in(testing::source_root() / "tests/golden/adapter_blend/golden.json");
  const auto golden = nlohmann::json::parse(in);
  std::vector<PeftAdapter> adapters;
  for (const auto& x : golden.at("adapters"))
    adapters.push_back(
        adapter_of(module_of(x.at("a"), x.at("b"), golden.at("rank"), x.at("alpha"))));
  for (const auto& c : golden.at("cases")) {
    CAPTURE(c.at("method").get<std::string>());
    const std::vector<double> weights = c.at("weights");
    const std::vector<PeftAdapter> some(adapters.begin(), adapters.begin() + std::ssize(weights));
    const PeftAdapter out = blend_adapters(
        some,
        {.method = kMethods.at(c.at("method")), .weights = weights, .density = c.at("density")});
    REQUIRE(out.modules.size() == 1);
    const PeftModule& m = out.modules[0];
    CHECK(m.scale == c.at("scale").get<double>());
    const std::vector<float> a = c.at("a"), b = c.at("b");
    REQUIRE(m.a.size() == a.size());
    REQUIRE(m.b.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(std::fabs(m.a[i] - a[i]) < 1e-6f);
    for (size_t i = 0; i < b.size(); ++i) CHECK(std::fabs(m.b[i] - b[i]) < 1e-6f);
  }
}

TEST_CASE("cat is the weighted sum of the changes, also for different ranks and weights") {
  PeftAdapter first = adapter_of(some_module(2, 1)), second = adapter_of(some_module(3, 2));
  second.modules.push_back(some_module(1, 3, "other"));
  const std::vector<PeftAdapter> both = {first, second};
  const PeftAdapter out = blend_adapters(both, {.weights = {0.5, -2}});
  REQUIRE(out.modules.size() == 2);
  const auto& of_proj = out.modules[out.modules[0].module() == "proj" ? 0 : 1];
  CHECK(of_proj.rank == 5);
  const auto sum = change(of_proj), a = change(first.modules[0]), b = change(second.modules[0]);
  for (size_t i = 0; i < sum.size(); ++i) CHECK(std::fabs(sum[i] - 0.5 * a[i] + 2 * b[i]) < 1e-5);
}

TEST_CASE("dare keeps a random part of the elements, divided by its share") {
  PeftModule large = module_of(std::vector<float>(static_cast<size_t>(500 * kIn), 1),
                               std::vector<float>(static_cast<size_t>(500 * kOut), 1), 500, 500);
  const std::vector<PeftAdapter> one = {adapter_of(large)};
  const BlendOptions options{
      .method = AdapterBlend::dare_linear, .weights = {1}, .density = 0.25, .seed = 3};
  const PeftAdapter out = blend_adapters(one, options);
  double kept = 0;
  for (float v : out.modules[0].a) {
    CHECK((v == 0 || v == 4));
    kept += v != 0;
  }
  CHECK(std::fabs(kept / (500 * kIn) - 0.25) < 0.03);
  CHECK(blend_adapters(one, options).modules[0].a == out.modules[0].a);
  BlendOptions other = options;
  other.seed = 4;
  CHECK(blend_adapters(one, other).modules[0].a != out.modules[0].a);
}

TEST_CASE("differences of changes, and adapters that do not fit together") {
  const PeftAdapter a = adapter_of(some_module(2, 1)), b = adapter_of(some_module(3, 2));
  CHECK(adapter_differences(a, a)[0].distance == 0);
  const auto d = adapter_differences(a, b);
  const auto x = change(a.modules[0]), y = change(b.modules[0]);
  double distance = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i)
    distance += (x[i] - y[i]) * (x[i] - y[i]), norm += x[i] * x[i];
  CHECK(d[0].distance == doctest::Approx(std::sqrt(distance)));
  CHECK(*d[0].norm_a == doctest::Approx(std::sqrt(norm)));
  const auto alone = adapter_differences(a, adapter_of(some_module(1, 1, "other")));
  REQUIRE(alone.size() == 2);
  CHECK_FALSE(alone[0].norm_a);
  CHECK(alone[0].relative() == doctest::Approx(1));

  const std::vector<PeftAdapter> both = {a, b};
  CHECK_THROWS_WITH_AS(blend_adapters(both, {.method = AdapterBlend::linear, .weights = {1, 1}}),
                       doctest::Contains("proj: adapter 1 is of [5,7] with rank 2, adapter 2 of"),
                       Error);
  PeftAdapter norms = a, whole = a;
  norms.dora = true;
  whole.whole.push_back({.tensor = "lm_head.weight", .shape = {1}, .values = {0}});
  CHECK_THROWS_WITH_AS(adapter_differences(a, norms), doctest::Contains("adapter 2 has trained"),
                       Error);
  CHECK_THROWS_WITH_AS(adapter_differences(whole, a), doctest::Contains("trained themselves"),
                       Error);
  PeftModule wide = some_module(2, 1);
  wide.out = 6, wide.b.resize(12);
  const std::vector<PeftAdapter> unequal = {a, adapter_of(wide)};
  CHECK_THROWS_WITH_AS(blend_adapters(unequal, {.weights = {1, 1}}),
                       doctest::Contains("do not fit together"), Error);
}
