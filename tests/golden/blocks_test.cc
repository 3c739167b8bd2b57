// Variants of decoder blocks (norms, parallel attention, MLPs, factors of streams and logits,
// rotary pairs) compared with transformers' models of the families that have them
// (blocks_generate.py): logits, loss and the norm of its gradient.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "hf_subject.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/cpu/cpu_backend.h"
#include "roots.h"

namespace mtrain::golden {
namespace {

fs::path blocks_folder() { return testing::source_root() / "tests/golden/blocks"; }

nlohmann::json cases() {
  std::ifstream file(blocks_folder() / "golden.json");
  return nlohmann::json::parse(file).at("cases");
}

/// A model of the plugin llama with the weights of a file under their own names.
struct Family {
  explicit Family(const nlohmann::json& row, DType dtype = DType::f32)
      : file(blocks_folder() / (row.at("name").get<std::string>() + ".safetensors")),
        plugins({testing::build_root() / "lib/mtrain/plugins"}),
        backend(make_cpu_backend(2)),
        ctx(*backend),
        build{.ctx = ctx, .parameters = parameters, .dtype = dtype} {
    Rows ids = id_rows(file.at("input_ids"));
    ModelContext context{.scope = Scope(build),
                         .stage = {},
                         .vocab_size = 48,
                         .valid_vocab = 48,
                         .max_positions = static_cast<int64_t>(ids[0].size())};
    Node section = parse_yaml(row.at("settings").dump(), "golden.json");
    model = plugins.make<Model>("llama", section, context);
    load();
    parameters.allocate_gradients(ctx);
    parameters.clear_gradients();
    input = input_of(ids, id_rows(file.at("targets")));
  }
  /// Every parameter has a tensor of the file, and every tensor a parameter.
  void load() {
    std::set<std::string> unread;
    for (const auto& tensor : file.tensors()) unread.insert(tensor.name);
    for (const char* other : {"input_ids", "targets", "logits"}) unread.erase(other);
    for (const auto& p : parameters.all()) {
      std::vector<float> values = floats(file.at(p.name));
      REQUIRE(static_cast<int64_t>(values.size()) == p.numel());
      ctx.upload(p.master, values.data());
      if (p.dtype != DType::f32) ctx.copy(p.value, p.master);
      unread.erase(p.name);
    }
    CHECK_MESSAGE(unread.empty(), (unread.empty() ? std::string() : *unread.begin()));
  }
  ModelInput input_of(const Rows& ids, const Rows& targets) {
    std::vector<int32_t> tokens, wanted, positions, bounds = {0};
    for (size_t r = 0; r < ids.size(); ++r) {
      for (size_t t = 0; t < ids[r].size(); ++t) positions.push_back(static_cast<int32_t>(t));
      tokens.insert(tokens.end(), ids[r].begin(), ids[r].end());
      wanted.insert(wanted.end(), targets[r].begin(), targets[r].end());
      bounds.push_back(static_cast<int32_t>(tokens.size()));
    }
    const Shape shape{static_cast<int64_t>(tokens.size())};
    ModelInput out;
    out.tokens_T = ctx.from_host<int32_t>(tokens, shape);
    out.positions_T = ctx.from_host<int32_t>(positions, shape);
    out.targets_T = ctx.from_host<int32_t>(wanted, shape);
    out.bounds = std::make_shared<const std::vector<int32_t>>(std::move(bounds));
    return out;
  }
  std::vector<float> values(const Tensor& t) {
    Tensor wide = ctx.empty(t.shape(), DType::f32);
    ctx.copy(wide, t);
    std::vector<float> out(static_cast<size_t>(t.numel()));
    ctx.download(wide, out.data());
    return out;
  }
  std::vector<float> logits() {
    GradMode off(ctx, false);
    ModelInput without = input;
    without.targets_T = {};
    return values(model->forward(without, {}));
  }

  SafetensorsFile file;
  PluginHost plugins;
  std::unique_ptr<Backend> backend;
  ExecutionContext ctx;
  ParamList parameters;
  BuildSettings build;
  std::unique_ptr<Model> model;
  ModelInput input;
};

double largest(const std::vector<float>& values) {
  double top = 0;
  for (float v : values) top = std::max(top, std::fabs(static_cast<double>(v)));
  return top;
}

TEST_CASE("transformers: variants of blocks give the same logits") {
  for (const auto& row : cases()) {
    INFO(row.at("name").get<std::string>());
    Family family(row);
    std::vector<float> want = floats(family.file.at("logits")), got = family.logits();
    REQUIRE(got.size() == want.size());
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i)
      worst =
          std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    MESSAGE(row.at("name").get<std::string>(), ": ", worst / largest(want));
    CHECK(worst <= 1e-5 * largest(want));
  }
}

TEST_CASE("transformers: variants of blocks give the same loss, and a gradient of the same norm") {
  for (const auto& row : cases())
    for (bool known : {true, false}) {  // whether the head knows the weights of the losses
      INFO(row.at("name").get<std::string>(), known ? ", gradient in forward" : "");
      Family family(row);
      const auto tokens = static_cast<size_t>(family.input.tokens_T.numel());
      const float weight = 1.0f / static_cast<float>(tokens);
      if (known) family.input.loss_weight = weight;
      Tensor losses = family.model->forward(family.input, {});
      double loss = 0, squares = 0;
      for (float one : family.values(losses)) loss += static_cast<double>(one) * weight;
      backward(losses, family.ctx.from_host<float>(std::vector<float>(tokens, weight),
                                                   {static_cast<int64_t>(tokens)}));
      for (const auto& p : family.parameters.all())
        for (float g : family.values(p.main_grad)) squares += static_cast<double>(g) * g;
      CHECK(std::fabs(loss / row.at("loss").get<double>() - 1) < 1e-5);
      CHECK(std::fabs(std::sqrt(squares) / row.at("grad_norm").get<double>() - 1) < 1e-4);
    }
}

TEST_CASE("transformers: in bf16 variants of blocks stay within its noise") {
  for (const auto& row : cases()) {
    INFO(row.at("name").get<std::string>());
    std::vector<float> exact = floats(Family(row).file.at("logits")),
                       got = Family(row, DType::bf16).logits();
    double difference = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(exact[i]), 2);
      size += std::pow(static_cast<double>(exact[i]), 2);
    }
    const double relative = std::sqrt(difference / size);
    MESSAGE(row.at("name").get<std::string>(), ": ", relative);
    CHECK(relative < 0.04);
    CHECK(relative > 5e-4);
  }
}

}  // namespace
}  // namespace mtrain::golden
