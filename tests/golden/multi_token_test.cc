// Multi-token prediction compared with transformers' layers composed as the paper says
// (multi_token_generate.py): the losses of all depths, packed sequences of different lengths with
// ignored targets, and the gradient of each parameter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hf_subject.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/train/model_input.h"
#include "roots.h"

namespace mtrain::golden {
namespace {

fs::path multi_token_folder() { return testing::source_root() / "tests/golden/multi_token"; }

nlohmann::json expected() {
  std::ifstream file(multi_token_folder() / "golden.json");
  return nlohmann::json::parse(file);
}

struct MultiTokenSubject {
  explicit MultiTokenSubject(int64_t depths, BlockPlan plan = {})
      : blocks(std::move(plan)),
        file(multi_token_folder() / "tiny.safetensors"),
        plugins({testing::build_root() / "lib/mtrain/plugins"}),
        backend(make_cpu_backend(2)),
        ctx(*backend),
        build{.ctx = ctx, .parameters = parameters, .parallel = &parallel, .blocks = &blocks} {
    nlohmann::json settings = expected().at("settings");
    if (depths == 0) settings.erase("mtp");
    ModelContext context{.scope = Scope(build),
                         .stage = {},
                         .vocab_size = 48,
                         .valid_vocab = 48,
                         .max_positions = 64};
    model = plugins.make<Model>("llama", parse_yaml(settings.dump(), "golden.json"), context);
    for (const auto& p : parameters.all()) {
      std::vector<float> values = floats(file.at(p.name));
      REQUIRE(static_cast<int64_t>(values.size()) == p.numel());
      ctx.upload(p.master, values.data());
    }
    parameters.allocate_gradients(ctx);
    parameters.clear_gradients();
    MicroBatch batch{.tokens = id_rows(file.at("input_ids"))[0],
                     .targets = id_rows(file.at("targets"))[0],
                     .positions = {},
                     .cu_seqlens = {0}};
    const Rows lengths = id_rows(file.at("lengths"));
    for (int32_t length : lengths[0]) {
      for (int32_t t = 0; t < length; ++t) batch.positions.push_back(t);
      batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
    }
    targets =
        std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; });
    input = own_part(ctx, batch, parallel, depths);
  }
  /// The mean loss of the next tokens. Leaves the gradients in the parameters.
  double step(bool known) {
    const float weight = 1.0f / static_cast<float>(targets);
    input.loss_weight = known ? weight : 0;
    Tensor losses = model->forward(input, {});
    const auto tokens = static_cast<size_t>(losses.numel());
    std::vector<float> values(tokens);
    ctx.download(losses, values.data());
    backward(losses, ctx.from_host<float>(std::vector<float>(tokens, weight), losses.shape()));
    double sum = 0;
    for (float value : values) sum += static_cast<double>(value);
    return sum / static_cast<double>(targets);
  }
  std::vector<float> gradient(const Parameter& p) {
    std::vector<float> out(static_cast<size_t>(p.numel()));
    ctx.download(p.main_grad, out.data());
    return out;
  }

  ParallelContext parallel;
  BlockPlan blocks;
  SafetensorsFile file;
  PluginHost plugins;
  std::unique_ptr<Backend> backend;
  ExecutionContext ctx;
  ParamList parameters;
  BuildSettings build;
  std::unique_ptr<Model> model;
  ModelInput input;
  int64_t targets = 0;
};

TEST_CASE("multi-token prediction: the losses of all depths are those of the reference") {
  const nlohmann::json want = expected();
  for (bool known : {true, false}) {
    MultiTokenSubject subject(2);
    const double loss = subject.step(known);
    CHECK(std::fabs(loss / want.at("loss").get<double>() - 1) < 1e-5);
    const std::vector<StepFigure> figures = subject.model->end_step(true);
    REQUIRE(figures.size() == 2);
    for (size_t k = 0; k < 2; ++k) {
      CHECK(figures[k].name == cat("mtp_", k + 1, "_loss"));
      const double mean = want.at("sums")[k].get<double>() / want.at("targets")[k].get<double>();
      CHECK(std::fabs(figures[k].value / mean - 1) < 1e-5);
    }
  }
}

TEST_CASE("multi-token prediction: every gradient is that of the reference") {
  for (bool known : {true, false}) {
    MultiTokenSubject subject(2);
    subject.step(known);
    double worst = 0;
    for (const auto& p : subject.parameters.all()) {
      INFO(p.name);
      const std::vector<float> want = floats(subject.file.at("grad." + p.name)),
                               got = subject.gradient(p);
      double top = 0, apart = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        top = std::max(top, std::fabs(static_cast<double>(want[i])));
        apart =
            std::max(apart, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
      }
      CHECK(apart <= 2e-5 * top);
      worst = std::max(worst, apart / top);
    }
    MESSAGE("gradients: ", worst);
  }
}

TEST_CASE("multi-token prediction: the model's own loss and its logits do not depend on it") {
  MultiTokenSubject with(2), without(0);
  CHECK(with.parameters.all().size() == without.parameters.all().size() + 2 * 11);
  auto values = [](MultiTokenSubject& s, bool targets) {
    GradMode off(s.ctx, false);
    ModelInput input = s.input;
    input.ahead.clear();  // as in evaluation
    if (!targets) input.targets_T = {};
    Tensor y = s.model->forward(input, {});
    std::vector<float> out(static_cast<size_t>(y.numel()));
    s.ctx.download(y, out.data());
    return out;
  };
  CHECK(values(with, true) == values(without, true));
  CHECK(values(with, false) == values(without, false));
  CHECK(with.step(true) == without.step(true));
}

TEST_CASE("multi-token prediction: recomputation changes no bit of the gradients") {
  for (bool first_only : {false, true}) {
    MultiTokenSubject kept(2),
        again(2, {.full = true, .first_only = first_only, .recompute_layers = 2});
    CHECK(kept.step(true) == again.step(true));
    for (size_t i = 0; i < kept.parameters.all().size(); ++i)
      CHECK_MESSAGE(
          kept.gradient(kept.parameters.all()[i]) == again.gradient(again.parameters.all()[i]),
          kept.parameters.all()[i].name);
  }
}

}  // namespace
}  // namespace mtrain::golden
