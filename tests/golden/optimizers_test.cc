// The optimizers sgd, lion and muon against torch.optim.SGD, lion-pytorch and torch.optim.Muon
// (optimizers_generate.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <vector>

#include "../../plugins/optimizer/kernels/cpu_levels.h"
#include "hf_subject.h"
#include "mtrain/cpu/cpu_backend.h"
#include "roots.h"

namespace mtrain::golden {
namespace {

using Weights = std::vector<std::vector<float>>;

Node setting_of(const nlohmann::json& value) {
  if (value.is_boolean()) return Node::boolean(value.get<bool>());
  if (value.is_number_integer()) return Node::integer(value.get<int64_t>());
  if (value.is_number()) return Node::number(value.get<double>());
  return Node::string(value.get<std::string>());
}

std::vector<float> downloaded(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.numel()));
  tensor.context().download(tensor, out.data());
  return out;
}

/// A weight with its optimizer state.
struct SteppedWeight {
  SteppedWeight(ExecutionContext& ctx, const Optimizer& optimizer, const std::vector<int64_t>& size,
                const std::vector<float>& start)
      : shape{size[0], size[1]},
        dims{{"rows", size[0]}, {"columns", size[1]}},
        matrices(plain_matrices(shape)),
        info{.name = "weight",
             .role = ParamRole::matrix,
             .dims = dims,
             .shape = shape,
             .matrices = matrices},
        master(ctx.from_host<float>(start, shape)) {
    for (size_t i = 0; i < optimizer.state_names(info).size(); ++i)
      state.push_back(ctx.zeros(shape, DType::f32));
  }
  Shape shape;
  Dims dims;
  std::vector<LogicalMatrix> matrices;
  ParamInfo info;
  Tensor master, value;
  std::vector<Tensor> state;
};

struct GoldenCase {
  const nlohmann::json& file;
  const nlohmann::json& json;
  std::string optimizer() const { return json.at("optimizer"); }
};

/// Makes all steps, with compute copies in `copy`, and checks those. Returns the weights after the
/// first and the last step.
std::vector<Weights> make_steps(const GoldenCase& c, ExecutionContext& ctx, PluginHost& plugins,
                                DType copy) {
  Node settings = Node::map();
  for (const auto& [name, value] : c.json.at("settings").items())
    settings.set(name, setting_of(value));
  OptimizerContext context{ctx};
  auto optimizer = plugins.make<Optimizer>(c.optimizer(), settings, context);
  std::deque<SteppedWeight> weights;
  for (size_t i = 0; i < c.file.at("shapes").size(); ++i) {
    auto& w = weights.emplace_back(ctx, *optimizer, c.file["shapes"][i].get<std::vector<int64_t>>(),
                                   c.file["start"][i].get<std::vector<float>>());
    if (copy != DType::f32) w.value = ctx.empty(w.shape, copy);
  }
  std::vector<Weights> out;
  constexpr float kScale = 0.5f;  // of gradients: exact
  const auto& steps = c.file.at("gradients");
  for (size_t step = 0; step < steps.size(); ++step) {
    for (size_t i = 0; i < weights.size(); ++i) {
      SteppedWeight& w = weights[i];
      auto gradient = steps[step][i].get<std::vector<float>>();
      for (float& g : gradient) g /= kScale;
      const Box whole = whole_box(w.shape);
      const std::vector<ParamBox> boxes = {{whole, whole}};
      optimizer->update({.ctx = ctx,
                         .param = w.info,
                         .scope = optimizer->scope(w.info),
                         .matrices = w.matrices,
                         .boxes = boxes,
                         .local = w.shape,
                         .master = w.master,
                         .grad = ctx.from_host<float>(gradient, w.shape),
                         .state = w.state,
                         .matrix_state = {},
                         .value = w.value,
                         .lr = c.file.at("lr"),
                         .weight_decay = c.json.at("weight_decay"),
                         .grad_scale = kScale,
                         .step = static_cast<int64_t>(step) + 1});
    }
    if (step != 0 && step + 1 != steps.size()) continue;
    Weights& now = out.emplace_back();
    for (SteppedWeight& w : weights) {
      now.push_back(downloaded(w.master));
      if (!w.value.defined()) continue;
      Tensor copied = ctx.empty(w.shape, copy), here = ctx.empty(w.shape, DType::f32),
             wanted = ctx.empty(w.shape, DType::f32);
      ctx.copy(copied, w.master);
      ctx.copy(wanted, copied);
      ctx.copy(here, w.value);
      CHECK(downloaded(here) == downloaded(wanted));
    }
  }
  return out;
}

double furthest_weight(const Weights& got, const Weights& want) {
  REQUIRE(got.size() == want.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i].size() == want[i].size());
    for (size_t j = 0; j < got[i].size(); ++j)
      most = std::max(most,
                      std::fabs(static_cast<double>(got[i][j]) - static_cast<double>(want[i][j])));
  }
  return most;
}

/// The products of Muon in fp32 add in another order than torch's. In bf16 its matrices have 8
/// bits, of steps of about 0.02.
double allowed_difference(const nlohmann::json& settings) {
  const std::string dtype = settings.value("newton_schulz_dtype", "");
  return dtype.empty() ? 5e-7 : dtype == "bf16" ? 2e-3 : 2e-6;
}

}  // namespace

TEST_CASE(
    "sgd, lion and muon make the steps of torch.optim.SGD, lion-pytorch and torch.optim.Muon") {
  PluginHost plugins({testing::build_root() / "lib/mtrain/plugins"});
  auto backend = make_backend(plugins);
  ExecutionContext ctx(*backend);
  std::ifstream stream(testing::source_root() / "tests/golden/optimizers/golden.json");
  const nlohmann::json file = nlohmann::json::parse(stream);
  std::set<std::string> seen;
  for (const auto& json : file.at("cases")) {
    const GoldenCase c{file, json};
    const std::string words = json.at("optimizer").dump() + json.at("settings").dump();
    CAPTURE(words);
    seen.insert(c.optimizer());
    const std::vector<Weights> got = make_steps(c, ctx, plugins, DType::f32);
    REQUIRE(got.size() == json.at("weights").size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = furthest_weight(got[i], json["weights"][i].get<Weights>());
      CHECK_MESSAGE(difference <= allowed_difference(json.at("settings")), i, ": ", difference);
    }
    for (DType copy : {DType::bf16, DType::f16}) CHECK(make_steps(c, ctx, plugins, copy) == got);
  }
  CHECK(seen == std::set<std::string>{"lion", "muon", "sgd"});
}

#ifdef MT_X86_LEVELS
namespace {

using optimizer_kernels::Kernels;

struct UpdatedArrays {
  std::vector<float> param, momentum;
  std::vector<uint16_t> value;
  bool operator==(const UpdatedArrays&) const = default;
};

/// Three updates of random elements by the kernels of one level.
UpdatedArrays updated_by(const Kernels& table, Stream& stream, bool lion, bool nesterov) {
  constexpr size_t kCount = 1037;
  UpdatedArrays a{std::vector<float>(kCount), std::vector<float>(kCount),
                  std::vector<uint16_t>(kCount)};
  std::vector<float> grad(kCount);
  std::mt19937 draws(5);
  std::normal_distribution<float> normal;
  for (float& p : a.param) p = normal(draws);
  for (int step = 0; step < 3; ++step) {
    for (float& g : grad) g = normal(draws);
    if (lion)
      table.lion(&stream, {a.param.data(), grad.data(), a.momentum.data(), a.value.data(), kCount,
                           1e-3f, 0.9f, 0.1f, 0.99f, 0.01f, 0.9997f, 0.37f, DType::bf16});
    else
      table.sgd(&stream, {a.param.data(), grad.data(), a.momentum.data(), a.value.data(), kCount,
                          0.01f, 0.1f, 0.999f, 0.9f, 0.37f, nesterov, DType::bf16});
  }
  return a;
}

}  // namespace

TEST_CASE("the updates of sgd and lion have the same bits at every instruction-set level") {
  auto backend = make_cpu_backend(2);
  auto stream = backend->stream({});
  namespace levels = optimizer_kernels;
  for (bool lion : {false, true})
    for (bool nesterov : {false, true}) {
      const UpdatedArrays want = updated_by(levels::base::kTable, *stream, lion, nesterov);
      if (cpu_has_level("v3"))
        CHECK(updated_by(levels::v3::kTable, *stream, lion, nesterov) == want);
      if (cpu_has_level("v4"))
        CHECK(updated_by(levels::v4::kTable, *stream, lion, nesterov) == want);
    }
}
#endif

}  // namespace mtrain::golden
