// Groups of parameters against torch.optim.AdamW with groups (param_groups_generate.py): rates,
// weight decays and the values after the last step.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "built_plugins.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/nn/scope.h"
#include "mtrain/optim/optimizer_state.h"
#include "roots.h"

using namespace mtrain;

namespace {

const std::map<std::string, ParamRole> kGroupRoles = {{"embedding", ParamRole::embedding},
                                                      {"norm", ParamRole::norm},
                                                      {"matrix", ParamRole::matrix},
                                                      {"bias", ParamRole::bias},
                                                      {"head", ParamRole::head}};

std::optional<double> number_at(const nlohmann::json& item, const char* key) {
  return item.contains(key) ? std::optional(item.at(key).get<double>()) : std::nullopt;
}

ParamRateOptions group_options(const nlohmann::json& settings) {
  ParamRateOptions out{.lr = settings.at("lr"),
                       .weight_decay = settings.at("weight_decay"),
                       .embedding_lr = settings.at("embedding_lr").get<double>(),
                       .layer_decay = settings.at("layer_decay"),
                       .layers = settings.at("layers")};
  out.schedule.type = settings.at("scheduler").at("type");
  out.schedule.decay_steps = settings.at("scheduler").at("decay_steps");
  for (const auto& item : settings.at("groups")) {
    ParamGroup& group = out.groups.emplace_back();
    if (item.contains("match")) group.match = item.at("match").get<std::string>();
    if (item.contains("role")) group.role = item.at("role").get<std::string>();
    group.lr_scale = number_at(item, "lr_scale");
    group.weight_decay = number_at(item, "weight_decay");
  }
  return out;
}

void add_parameter(BuildSettings& build, const nlohmann::json& row) {
  const auto name = row.at("name").get<std::string>();
  const size_t dot = name.rfind('.');
  const bool table = name == "embed.weight" || name == "head.weight";
  Dims dims;
  for (const int64_t size : row.at("shape").get<std::vector<int64_t>>())
    dims.push_back({dims.empty() && table ? "vocab" : cat("dim", dims.size()), size});
  Parameter& p = Scope(build, name.substr(0, dot))
                     .param(name.substr(dot + 1), dims, Init::zeros(), row.at("decay"),
                            kGroupRoles.at(row.at("role")));
  build.ctx.upload(p.master, row.at("initial").get<std::vector<float>>().data());
}

}  // namespace

TEST_CASE("groups of parameters train as torch's AdamW with the same groups") {
  std::ifstream file(testing::source_root() / "tests/golden/param_groups/golden.json");
  const auto golden = nlohmann::json::parse(file);
  const auto& settings = golden.at("settings");
  const auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  ParamList list;
  BuildSettings build{.ctx = ctx, .parameters = list};
  for (const auto& row : golden.at("parameters")) add_parameter(build, row);
  list.allocate_gradients(ctx);
  Node adamw = Node::map();
  for (const char* name : {"beta1", "beta2", "eps"})
    adamw.set(name, Node::number(settings.at(name)));
  OptimizerContext context{ctx};
  const auto optimizer = testing::shared_plugins().make<Optimizer>("adamw", adamw, context);
  OptimizerState state(ctx, list, *optimizer);
  ParamRates rates(group_options(settings));
  rates.add(list);
  rates.require_matches();

  const auto& gradients = golden.at("gradients");
  for (size_t step = 0; step < gradients.size(); ++step) {
    const auto of = rates.at(static_cast<int64_t>(step));
    for (size_t i = 0; i < list.all().size(); ++i) {
      const Parameter& p = list.all()[i];
      INFO(p.name, " in step ", step);
      const double wanted = golden.at("rates")[step][i];
      CHECK(std::fabs(of(p).lr / wanted - 1) < 1e-12);
      CHECK(of(p).weight_decay == golden.at("parameters")[i].at("weight_decay").get<double>());
      ctx.upload(p.main_grad, gradients[step][i].get<std::vector<float>>().data());
    }
    state.update({.grad_norm = 1, .step = static_cast<int64_t>(step) + 1, .rates = of});
  }
  for (size_t i = 0; i < list.all().size(); ++i) {
    const Parameter& p = list.all()[i];
    std::vector<float> got(static_cast<size_t>(p.numel()));
    ctx.download(p.master, got.data());
    const auto wanted = golden.at("parameters")[i].at("final").get<std::vector<float>>();
    REQUIRE(got.size() == wanted.size());
    for (size_t k = 0; k < got.size(); ++k) {
      INFO(p.name, "[", k, "]");
      CHECK(std::fabs(got[k] - wanted[k]) < 2e-6f);
    }
  }
}
