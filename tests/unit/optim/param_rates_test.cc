// Groups of parameters: who is in them, what their rates are, and what is refused.
#include "mtrain/optim/param_rates.h"

#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"
#include "mtrain/base/error.h"
#include "mtrain/config/read_items.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

/// The parameters of a small model with two blocks, whose attention is one fused weight.
struct SmallModel {
  explicit SmallModel(bool tied = false) {
    auto matrix = [&](const std::string& path, const std::vector<LogicalMatrix>& parts = {}) {
      at(path).linear_weight({"out", 6}, {"in", 4}, Init::ones(), parts);
    };
    auto vector = [&](const std::string& path, const char* name, ParamRole role) {
      at(path).param(name, {{"out", 6}}, Init::ones(), false, role);
    };
    at("embed").param("weight", {{"vocab", 8}, {"embed", 4}}, Init::ones(), true,
                      ParamRole::embedding);
    at("positions")
        .param("weight", {{"positions", 5}, {"embed", 4}}, Init::ones(), true,
               ParamRole::embedding);
    vector("embed_norm", "weight", ParamRole::norm);
    for (const char* block : {"layers.0", "layers.1"}) {
      const std::string b = block;
      vector(b + ".norm1", "weight", ParamRole::norm);
      matrix(b + ".attn.qkv", {{.name = "q", .rows = {{0, 2}}, .cols = 4},
                               {.name = "k", .rows = {{2, 2}}, .cols = 4},
                               {.name = "v", .rows = {{4, 2}}, .cols = 4}});
      vector(b + ".attn.qkv", "bias", ParamRole::bias);
      matrix(b + ".mlp.up");
    }
    vector("norm", "weight", ParamRole::norm);
    if (!tied)
      at("head").param("weight", {{"vocab", 8}, {"embed", 4}}, Init::ones(), true, ParamRole::head);
  }
  Scope at(const std::string& path) { return Scope(settings, path); }
  contract::Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list};
};

std::vector<ParamGroup> groups_of(const std::string& yaml) {
  return require_items<ParamGroup>(parse_yaml(yaml, "groups.yaml"), "optimizer.groups");
}

ParamRateOptions constant(const std::string& groups = "[]") {
  ParamRateOptions o{.lr = 0.5, .weight_decay = 0.25, .groups = groups_of(groups)};
  o.schedule.type = "constant";
  return o;
}

ParamRates rates_of(SmallModel& model, const ParamRateOptions& options) {
  ParamRates rates(options);
  rates.add(model.list);
  rates.require_matches();
  return rates;
}

ParamRate rate_of(SmallModel& model, const ParamRates& rates, const char* name, int64_t step = 0) {
  return rates.at(step)(*model.list.find(name));
}

std::string refusal(const ParamRateOptions& options, bool tied = false) {
  try {
    SmallModel model(tied);
    rates_of(model, options);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::config);
    return cat(error.message(), " | ", error.hint());
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("param rates: without groups, all have one rate, and vectors no decay") {
  SmallModel model;
  const ParamRates rates = rates_of(model, constant());
  for (const Parameter& p : model.list.all()) {
    const ParamRate rate = rates.at(3)(p);
    CHECK(rate.lr == 0.5);
    CHECK(rate.weight_decay == (p.global.rank() == 2 ? 0.25 : 0.0));
  }
  CHECK(rates.lines().empty());
  CHECK(rates.figures(0).empty());
}

TEST_CASE("param rates: a group is found by name, layer, role or both, and changes what it names") {
  SmallModel model;
  const ParamRates rates = rates_of(
      model,
      constant("[{match: 'layers.*.norm1', weight_decay: 0.1}, {role: embedding, lr: 0.125}, "
               "{match: mlp.up.weight, lr_scale: 0.5}, {match: 'layers.1.*', role: bias, "
               "lr: 0.25, weight_decay: 0.75}]"));
  CHECK(rate_of(model, rates, "layers.0.norm1.weight").weight_decay == 0.1);
  CHECK(rate_of(model, rates, "layers.0.norm1.weight").lr == 0.5);
  CHECK(rate_of(model, rates, "norm.weight").weight_decay == 0);
  CHECK(rate_of(model, rates, "embed.weight").lr == 0.125);
  CHECK(rate_of(model, rates, "embed.weight").weight_decay == 0.25);
  CHECK(rate_of(model, rates, "positions.weight").lr == 0.125);
  CHECK(rate_of(model, rates, "layers.1.mlp.up.weight").lr == 0.25);
  CHECK(rate_of(model, rates, "layers.1.attn.qkv.bias").weight_decay == 0.75);
  CHECK(rate_of(model, rates, "layers.0.attn.qkv.bias").lr == 0.5);
  CHECK(rate_of(model, rates, "head.weight").lr == 0.5);
  const std::vector<std::string> lines = rates.lines();
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "layers.*.norm1: 2 parameters of 12, lr 0.5, weight decay 0.1");
  CHECK(lines[2] == "mlp.up.weight: 2 parameters of 48, lr 0.25, weight decay 0.25");
  CHECK(lines[3] == "layers.1.* bias: 1 parameter of 6, lr 0.25, weight decay 0.75");
  CHECK_MESSAGE(lines[4] == "others: 6 parameters of 98, lr 0.5, weight decay 0.0 or 0.25",
                lines[4]);
  const auto figures = rates.figures(0);
  REQUIRE(figures.size() == 3);  // those with another rate
  CHECK(figures[0] == std::pair<std::string, double>("lr/embedding", 0.125));
  CHECK(figures[1] == std::pair<std::string, double>("lr/mlp.up.weight", 0.25));
}

TEST_CASE("param rates: Hugging Face's names are understood as in peft.targets") {
  SmallModel model;
  const ParamRates rates =
      rates_of(model, constant("[{match: embed_tokens, lr: 0.1}, {match: lm_head, lr: 0.2}, "
                               "{match: all-linear, lr: 0.3}]"));
  CHECK(rate_of(model, rates, "embed.weight").lr == 0.1);
  CHECK(rate_of(model, rates, "head.weight").lr == 0.2);
  CHECK(rate_of(model, rates, "layers.1.attn.qkv.weight").lr == 0.3);
  CHECK(rate_of(model, rates, "layers.1.attn.qkv.bias").lr == 0.5);
}

TEST_CASE("param rates: schedules of groups end at their own minimum") {
  SmallModel model;
  ParamRateOptions o = constant(
      "[{role: head, lr: 0.1, min_lr: 0.02}, {role: norm, lr_scale: 0.5}, {role: bias, "
      "min_lr: 0.2}]");
  o.schedule = {.type = "linear", .warmup_steps = 2, .min_lr = 0.1};
  o.total_steps = 10;
  const ParamRates rates = rates_of(model, o);
  auto near = [&](const char* name, int64_t step, double want) {
    INFO(std::string(name), " at step ", step);
    CHECK(rate_of(model, rates, name, step).lr == doctest::Approx(want).epsilon(1e-12));
  };
  for (int64_t step : {0, 1, 2, 6, 9, 10}) {
    const double run = learning_rate(o.schedule, 0.5, step, 10);
    near("embed.weight", step, run);
    near("norm.weight", step, 0.5 * run);
  }
  near("head.weight", 0, 0.05);
  near("head.weight", 2, 0.1);
  near("head.weight", 6, 0.06);
  near("head.weight", 10, 0.02);
  near("layers.0.attn.qkv.bias", 6, 0.35);
  near("layers.0.attn.qkv.bias", 10, 0.2);
  o.schedule.min_lr = 0.25;
  const std::string rises = refusal(o);
  CHECK(rises == "accepted");  // each has a minimum of its own, or a share of the run's
  o.groups = groups_of("[{role: head, lr: 0.1}]");
  CHECK_MESSAGE(contains(refusal(o), "scheduler.min_lr 0.25 is above its peak 0.1"), refusal(o));
  o.groups = {}, o.embedding_lr = 0.1;
  CHECK(contains(refusal(o), "optimizer.embedding_lr: scheduler.min_lr 0.25"));
  CHECK(contains(refusal(o), "optimizer.embedding_min_lr=0.01"));
}

TEST_CASE("param rates: the embedding's rate is that of the table of tokens and of the head") {
  for (const bool tied : {false, true}) {
    SmallModel model(tied);
    ParamRateOptions o = constant("[{role: norm, weight_decay: 1}]");
    o.embedding_lr = 0.125;
    const ParamRates rates = rates_of(model, o);
    CHECK(rate_of(model, rates, "embed.weight").lr == 0.125);
    CHECK(rate_of(model, rates, "positions.weight").lr == 0.5);
    if (!tied) CHECK(rate_of(model, rates, "head.weight").lr == 0.125);
    CHECK(rates.figures(0).at(0).first == "lr/embedding_lr");
  }
}

TEST_CASE("param rates: layer_decay lowers the rate of each block below the last one") {
  SmallModel model;
  ParamRateOptions o = constant("[{role: bias, lr: 0.5}, {match: mlp.up, lr_scale: 2}]");
  o.layer_decay = 0.5, o.layers = 2;
  const ParamRates rates = rates_of(model, o);
  for (const char* top : {"layers.1.norm1.weight", "norm.weight", "head.weight"})
    CHECK(rate_of(model, rates, top).lr == 0.5);
  CHECK(rate_of(model, rates, "layers.0.norm1.weight").lr == 0.25);
  for (const char* bottom : {"embed.weight", "positions.weight", "embed_norm.weight"})
    CHECK(rate_of(model, rates, bottom).lr == 0.125);
  CHECK(rate_of(model, rates, "layers.0.attn.qkv.bias").lr == 0.5);  // lr is the rate itself
  CHECK(rate_of(model, rates, "layers.0.mlp.up.weight").lr == 0.5);  // lr_scale is a factor more
  CHECK(rate_of(model, rates, "layers.1.mlp.up.weight").lr == 1.0);
  CHECK(contains(rates.lines().back(), "lr 0.125 to 0.5"));

  SmallModel stacks;
  stacks.at("encoder.0").param("weight", {{"out", 2}}, Init::ones(), false, ParamRole::norm);
  ParamRates two(o);
  CHECK_THROWS_WITH(two.add(stacks.list), doctest::Contains("blocks in 'layers' and in 'encoder'"));
  o.layers = 1;
  CHECK(contains(refusal(o), "the model has a block layers.1, and its number of blocks is 1"));
}

TEST_CASE("param rates: a factor applies where no absolute rate is given") {
  SmallModel model;
  ParamRateOptions o = constant("[{role: bias, lr: 0.5}]");
  o.factor = [](const Parameter& p) { return p.global.rank() == 1 ? 4.0 : 1.0; };
  const ParamRates rates = rates_of(model, o);
  CHECK(rate_of(model, rates, "norm.weight").lr == 2.0);
  CHECK(rate_of(model, rates, "layers.0.attn.qkv.bias").lr == 0.5);
  CHECK(rate_of(model, rates, "head.weight").lr == 0.5);
}

TEST_CASE("param rates: what matches nothing, twice or only in part is refused by name") {
  const std::string twice =
      refusal(constant("[{match: '*.norm*', weight_decay: 0}, {match: 'layers.0.*', lr: 0.1}]"));
  CHECK_MESSAGE(contains(twice,
                         "layers.0.norm1.weight is in two groups: optimizer.groups[0] "
                         "(*.norm*) and optimizer.groups[1] (layers.0.*)"),
                twice);
  ParamRateOptions both = constant("[{role: head, lr: 0.1}]");
  both.embedding_lr = 0.1;
  CHECK(contains(refusal(both), "optimizer.groups[0] (head) and optimizer.embedding_lr"));
  const std::string typo = refusal(constant("[{match: layers.*.mlp.upp.weight, lr: 0.1}]"));
  CHECK_MESSAGE(contains(typo, "'layers.*.mlp.upp.weight' matches no parameter"), typo);
  CHECK_MESSAGE(contains(typo, "did you mean layers.*.mlp.up.weight"), typo);
  const std::string part = refusal(constant("[{match: q_proj, lr: 0.1}]"));
  CHECK_MESSAGE(contains(part, "'q_proj' matches only a part of layers.0.attn.qkv.weight"), part);
  CHECK_MESSAGE(contains(part, "attn.qkv.weight"), part);
  CHECK(contains(refusal(constant("[{role: router, lr: 0.1}]")), "no parameter has the role"));
  CHECK(contains(refusal(constant("[{match: 'layers.*', role: head, lr: 0.1}]")),
                 "matches no parameter of the model with the role head"));

  SmallModel frozen;
  for (Parameter& p : frozen.list.all()) p.trained = p.role != ParamRole::bias;
  ParamRates rates(constant("[{role: bias, lr: 0.1}]"));
  rates.add(frozen.list);
  CHECK_THROWS_WITH(rates.require_matches(), doctest::Contains("its 2 parameters are frozen"));
}

TEST_CASE("param groups: items are read with their locations, and contradictions are refused") {
  auto fault = [](const std::string& yaml) {
    Report report;
    read_items<ParamGroup>(parse_yaml(yaml, "r.yaml"), "optimizer.groups", report);
    return report.text();
  };
  CHECK(fault("[{role: norm, lr: 1e-4}]").empty());
  CHECK(fault("~").empty());
  const std::string key = fault("[{role: norm, lr: 1}, {match: a, lr_scal: 0.5}]");
  CHECK_MESSAGE(contains(key, "optimizer.groups[1].lr_scal"), key);
  CHECK_MESSAGE(contains(key, "lr_scale"), key);
  CHECK_MESSAGE(contains(key, "r.yaml:1:"), key);
  for (const auto& [yaml, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"[{lr: 1}]", "neither match nor role"},
           {"[{role: norm}]", "changes nothing"},
           {"[{role: norm, lr: 1, lr_scale: 1}]", "exclude each other"},
           {"[{match: 'a b', lr: 1}]", "is no pattern of parameter names"},
           {"[{role: norms, lr: 1}]", "optimizer.groups[0].role"},
           {"[{role: norm, lr: -1}]", "optimizer.groups[0].lr"},
           {"{role: norm, lr: 1}", "expected a list of maps"},
           {"[norm]", "expected a map"}})
    CHECK_MESSAGE(contains(fault(yaml), wanted), fault(yaml));
}

}  // namespace
}  // namespace mtrain
