// Frozen parameters as codes: shards have the codes of the whole, and matrices scales of their own.
#include "mtrain/nn/coded_parameter.h"

#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"
#include "mtrain/nn/adapter.h"
#include "mtrain/nn/encode_weight.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

using namespace contract;

const CodedFormat kFormats[] = {{WeightFormat::nf4, true},
                                {WeightFormat::nf4, false},
                                {WeightFormat::int8, false},
                                {WeightFormat::fp8, false}};

constexpr int64_t kRows = 160, kCols = 256;

std::vector<float> some_values(int64_t count) {
  const Values v = random_values(count, "coded", 0.05);
  std::vector<float> out(v.begin(), v.end());
  for (size_t i = 0; i < out.size(); ++i) out[i] *= static_cast<float>(1 + (i / 4096) % 5);
  return out;
}

/// A parameter [kRows, kCols], of which a rank holds these pieces; with the values of the whole.
Parameter coded(ExecutionContext& ctx, const CodedFormat& format, std::vector<DimShard> shards,
                const std::vector<LogicalMatrix>& matrices, const std::vector<float>& whole) {
  Parameter p;
  p.name = "layers.0.mlp.up.weight";
  p.trained = false;
  p.global = p.local = {static_cast<int64_t>(whole.size()) / kCols, kCols};
  p.matrices = matrices.empty() ? plain_matrices(p.global) : matrices;
  p.shards = std::move(shards);
  for (const DimShard& s : p.shards) p.local[s.dim] = s.size();
  store_as_codes(p, ctx, format);
  set_values(p, whole);
  return p;
}

TEST_CASE("codes: values are near those that were encoded") {
  const std::vector<float> whole = some_values(kRows * kCols);
  for (const CodedFormat& format : kFormats) {
    CAPTURE(std::string(name(format.format)));
    Fixture lab;
    const Parameter p = coded(lab.context(), format, {}, {}, whole);
    CHECK(p.dtype == DType::u8);
    CHECK(p.numel() == kRows * kCols);
    const std::vector<float> got = decoded_values(p);
    double apart = 0, size = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      const double d = static_cast<double>(got[i]) - static_cast<double>(whole[i]);
      apart += d * d, size += static_cast<double>(whole[i]) * static_cast<double>(whole[i]);
    }
    const double error = std::sqrt(apart / size);
    CHECK(error > 1e-3);
    CHECK(error < (format.format == WeightFormat::nf4    ? 0.11
                   : format.format == WeightFormat::int8 ? 0.01
                                                         : 0.03));
  }
}

TEST_CASE("codes: values that are not finite are refused by name") {
  for (const CodedFormat& format : kFormats)
    for (const float bad : {std::nanf(""), HUGE_VALF}) {
      Fixture lab;
      std::vector<float> whole = some_values(kRows * kCols);
      whole[777] = bad;
      CHECK_THROWS_WITH_AS(coded(lab.context(), format, {}, {}, whole),
                           doctest::Contains("layers.0.mlp.up.weight has NaN or infinity"), Error);
    }
}

TEST_CASE("codes: a shard has the values that the whole has") {
  const std::vector<float> whole = some_values(kRows * kCols);
  const std::vector<LogicalMatrix> fused = {{"q", {{0, 64}, {96, 32}}, kCols},
                                            {"k", {{64, 32}, {128, 32}}, kCols}};
  const std::vector<std::vector<DimShard>> layouts = {
      {{0, {{40, 0, 80}}}},
      {{1, {{128, 0, 128}}}},
      {{1, {{64, 0, 64}}}},
      {{0, {{32, 0, 16}, {100, 16, 60}}}},
      {{0, {{96, 0, 64}}}, {1, {{192, 0, 64}}}},
      {{0, {{5, 0, 3}, {150, 3, 2}}}, {1, {{64, 0, 128}}}}};
  for (const CodedFormat& format : kFormats)
    for (const auto& matrices : {std::vector<LogicalMatrix>(), fused}) {
      CAPTURE(std::string(name(format.format)));
      CAPTURE(format.double_quant);
      Fixture lab;
      ExecutionContext& ctx = lab.context();
      const std::vector<float> all = decoded_values(coded(ctx, format, {}, matrices, whole));
      for (const auto& shards : layouts) {
        const Parameter p = coded(ctx, format, shards, matrices, whole);
        const std::vector<float> own = decoded_values(p);
        size_t compared = 0;
        for (const ParamBox& box : p.boxes())
          for_each_run(
              box.global, p.global, box.local, p.local,
              [&](int64_t from, int64_t at, int64_t count) {
                for (int64_t i = 0; i < count; ++i)
                  if (own[static_cast<size_t>(at + i)] == all[static_cast<size_t>(from + i)])
                    ++compared;
              });
        CHECK(compared == own.size());
      }
    }
}

TEST_CASE("codes: a matrix in a fused parameter has the values that it has alone") {
  const std::vector<float> whole = some_values(kRows * kCols);
  const std::vector<LogicalMatrix> fused = {{"q", {{0, 64}, {96, 32}}, kCols},
                                            {"k", {{64, 32}, {128, 32}}, kCols}};
  Fixture lab;
  for (const CodedFormat& format : kFormats) {
    const std::vector<float> all = decoded_values(coded(lab.context(), format, {}, fused, whole));
    for (const LogicalMatrix& m : fused) {
      std::vector<float> alone, want;
      for (const RowRange& range : m.rows) {
        const auto begin = range.first * kCols, end = begin + range.rows * kCols;
        alone.insert(alone.end(), whole.begin() + begin, whole.begin() + end);
        want.insert(want.end(), all.begin() + begin, all.begin() + end);
      }
      CHECK(decoded_values(coded(lab.context(), format, {}, {}, alone)) == want);
    }
  }
}

TEST_CASE("codes: memory is that of codes and scales") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const std::vector<float> whole = some_values(kRows * kCols);
  auto taken = [&](const CodedFormat& format) {
    const size_t before = ctx.memory().in_use();
    const Parameter p = coded(ctx, format, {}, {}, whole);
    return static_cast<double>(ctx.memory().in_use() - before);
  };
  const double n = kRows * kCols;
  constexpr double kRounding = 4 * 512;  // of four blocks of memory
  CHECK(taken(kFormats[0]) <= n / 2 + n / 64 + 8 * std::ceil(n / 64 / 256) + 4 * kRows + kRounding);
  CHECK(taken(kFormats[0]) < taken(kFormats[1]));
  CHECK(taken(kFormats[1]) <= n / 2 + 4 * n / 64 + kRounding);
  CHECK(taken(kFormats[2]) <= n + 4 * kRows + kRounding);
}

TEST_CASE("codes: rows of other widths than whole blocks are refused with the sizes") {
  Fixture lab;
  const std::vector<float> whole = some_values(kRows * kCols);
  CHECK_THROWS_WITH_AS(
      coded(lab.context(), kFormats[0], {{1, {{32, 0, 64}}}}, {}, whole),
      doctest::Contains("layers.0.mlp.up.weight have 64 of 256 elements on this rank"), Error);
  coded(lab.context(), {WeightFormat::int8, false}, {{1, {{32, 0, 64}}}}, {}, whole);
}

TEST_CASE("codes: linear layers of blocks have them, if they are frozen") {
  Fixture lab(1, 5);
  ParamList list;
  AdapterPlan plan({.rank = 2, .targets = {"mlp.*"}, .train = {"layers.1.mlp.up.weight"}});
  BuildSettings settings{
      .ctx = lab.context(), .parameters = list, .adapters = &plan, .frozen = kFormats[0]};
  const Scope root(settings);
  const Dim out{"mlp", 96}, in{"embed", 64};
  const Linear first(root / "layers" / 0 / "mlp" / "up", out, in),
      trained(root / "layers" / 1 / "mlp" / "up", out, in), outside(root / "pooler", out, in);
  CHECK(first.weight.coded);
  CHECK_FALSE(trained.weight.coded);
  CHECK_FALSE(outside.weight.coded);
  CHECK_FALSE(first.adapter()->a().coded);
  // The initial values are those of any other model, as near as codes are.
  ParamList plain;
  BuildSettings without{.ctx = lab.context(), .parameters = plain, .adapters = &plan};
  const Linear same(Scope(without) / "layers" / 0 / "mlp" / "up", out, in);
  const std::vector<float> got = decoded_values(first.weight);
  const Values want = values_of(same.weight.value);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::fabs(want[i]));
  }
  CHECK(worst < 0.17 * largest);
  // The layer computes from those values.
  const Tensor x = make(lab.context(), random_values(3 * 64, "x"), {3, 64}, DType::f32);
  const Tensor decoded = first.weight.coded->decode(lab.context(), DType::f32);
  CHECK(values_of(first(x)) == values_of(linear(x, decoded)));  // the adapter's b is 0
}

}  // namespace
}  // namespace mtrain
