// Sinkhorn balancing and latent experts, compared with Megatron-LM's published rules in PyTorch
// (tests/golden/moe_parts_generate.py).
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "moe_lab.h"
#include "roots.h"

namespace mtrain {
namespace {

using namespace contract;

MoeOptions golden_options(const nlohmann::json& sizes, const nlohmann::json& row) {
  MoeOptions out;
  out.experts = sizes.at("experts");
  out.ffn = sizes.at("ffn");
  out.latent = row.at("latent");
  out.shared_ffn = row.at("shared");
  out.sinkhorn = row.at("sinkhorn");
  out.rule.top_k = row.at("top_k");
  out.rule.pre_softmax = out.sinkhorn;
  if (out.sinkhorn && out.rule.top_k == 1) out.rule.score = RouterRule::Score::sigmoid;
  return out;
}

TEST_CASE("moe golden: value, gradients and choices are those of the published rules") {
  std::ifstream file(testing::source_root() / "tests/golden/moe_parts/golden.json");
  const auto golden = nlohmann::json::parse(file);
  const auto& sizes = golden.at("sizes");
  const int64_t tokens = sizes.at("tokens"), width = sizes.at("width");
  REQUIRE(golden.at("cases").size() == 4);
  for (const auto& row : golden.at("cases")) {
    INFO("sinkhorn ", row.at("sinkhorn").dump(), ", top_k ", row.at("top_k").dump(), ", latent ",
         row.at("latent").dump());
    Fixture lab{1};
    ExecutionContext& ctx = lab.context();
    ParamList list;
    BuildSettings settings{.ctx = ctx, .parameters = list};
    ParallelContext alone;
    settings.parallel = &alone;
    Moe moe(Scope(settings), {"embed", width}, golden_options(sizes, row));
    list.allocate_gradients(ctx);
    list.clear_gradients();
    auto values = [&](const nlohmann::json& from) { return from.get<Values>(); };
    size_t found = 0;
    for (const Parameter& p : list.all()) {
      const auto given = row.at("parameters").at(p.name).get<std::vector<float>>();
      REQUIRE(static_cast<int64_t>(given.size()) == p.numel());
      ctx.upload(p.master, given.data());
      ++found;
    }
    CHECK(found == row.at("parameters").size());
    auto target = std::make_shared<Catcher>();
    Tensor x = make(ctx, values(row.at("x")), {tokens, width}, DType::f32);
    x.set_node(target);
    Tensor y = moe(x, {.loss_weight = 1}, x);
    check_close(values_of(y), values(row.at("y")), DType::f32, {.sums = 64}, "value");
    backward(y, make(ctx, values(row.at("dy")), y.shape(), DType::f32));
    check_close(values_of(target->grad), values(row.at("dx")), DType::f32, {.sums = 64}, "dx");
    for (const Parameter& p : list.all())
      check_close(values_of(p.main_grad), values(row.at("gradients").at(p.name)), DType::f32,
                  {.sums = 64}, p.name);
    std::vector<int64_t> choices(static_cast<size_t>(sizes.at("experts").get<int64_t>()));
    for (int64_t e : row.at("chosen").get<std::vector<int64_t>>())
      ++choices[static_cast<size_t>(e)];
    CHECK(moe.record().choices == choices);
  }
}

}  // namespace
}  // namespace mtrain
