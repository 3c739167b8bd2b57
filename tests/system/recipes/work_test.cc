// The floating-point operations of the models of recipes, on which TFLOP/s and MFU rest: against
// published figures, and against the weights that a token meets.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "built_model.h"
#include "built_plugins.h"
#include "mtrain/base/text.h"
#include "mtrain/config/report.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// Without multi-token prediction, which published figures do not include.
Recipe worked_recipe(const std::string& name) {
  RecipeRequest request{.recipe = (kRecipes / (name + ".yaml")).string(),
                        .text = {},
                        .directory = {},
                        .overrides = {},
                        .cluster = {}};
  if (name == "deepseek_v3") request.overrides.push_back({"model.mtp.layers=0", 2});
  return read_recipe(request, shared_plugins());
}

/// True if this build lacks the model itself.
bool lacks_model(const Recipe& recipe) {
  const auto& faults = recipe.report.diagnostics();
  return std::any_of(faults.begin(), faults.end(), [](const auto& fault) {
    return fault.code == "not-built" && fault.path == "model.type";
  });
}

double number(const Recipe& recipe, const char* path, double otherwise) {
  const Node* node = recipe.config.root().find(path);
  return node ? node->as_double() : otherwise;
}

struct Published {
  const char* name;
  int64_t seq_length;  // 0: the weights' operations alone
  double flops;        // of a token, forward and backward
  double within;       // the published figure is rounded to this, relative
  const char* published;
};

// Rows of Megatron Bridge: TFLOP/s of a GPU over tokens/s of a GPU, the median of the runs of
// docs/performance-summary in NVIDIA-NeMo/Megatron-Bridge (release 26.08), whose single runs differ
// by up to 1.5 %. Rows of papers: operations of the training over its tokens.
const Published kWork[] = {
    {"llama3_8b", 8192, 5.15e10, 0.002, "Megatron Bridge: LLAMA3 8B"},
    {"llama3_8b_fp8", 8192, 5.15e10, 0.002, "Megatron Bridge: LLAMA3 8B"},
    {"llama3_70b", 8192, 4.49e11, 0.002, "Megatron Bridge: LLAMA3 70B"},
    {"llama31_405b", 8192, 2.525e12, 0.002, "Megatron Bridge: LLAMA3.1 405B"},
    {"qwen3_30b_a3b", 4096, 2.30e10, 0.01, "Megatron Bridge: Qwen3 30B A3B"},
    {"deepseek_v3", 4096, 2.49e11, 0.01, "Megatron Bridge: DeepSeek V3 without MTP"},
    {"gpt3_175b", 0, 3.14e23 / 300e9, 0.005, "arXiv:2005.14165, table D.1"},
    {"llama31_405b", 0, 3.8e25 / 15.6e12, 0.015, "arXiv:2407.21783, 3.2: 3.8e25 on 15.6T tokens"},
};

struct Active {
  const char* name;
  double parameters, unit;  // of the last digit, to which some round and others cut off
  const char* published;
};
// Parameters that a token meets, the embedding's table included.
const Active kActive[] = {
    {"mixtral_8x7b", 12.9e9, 0.1e9, "mistral.ai/news/mixtral-of-experts: 12.9B"},
    {"qwen3_30b_a3b", 3.3e9, 0.1e9, "Qwen/Qwen3-30B-A3B: 3.3B activated"},
    {"deepseek_v3", 37e9, 1e9, "arXiv:2412.19437: 37B activated"},
};

/// Multiply-adds of a token with the model's matrices, from the shapes of its parameters.
double products_of(const BuiltModel& model, const Recipe& of) {
  const double chosen = number(of, "model.moe.top_k", 1) / number(of, "model.moe.experts", 1);
  double products = 0;
  for (const Parameter& p : model.list().all()) {
    if (p.global.rank() < 2) continue;
    const auto count = static_cast<double>(p.global.numel());
    const bool tied = p.name == "embed.weight" && number(of, "model.labels", 0) == 0 &&
                      of.config.root().at("model.tie_embeddings").as_bool();
    if (p.role == ParamRole::embedding && !tied) continue;
    products += p.role == ParamRole::expert_matrix ? count * chosen : count;
  }
  return products;
}

}  // namespace

TEST_CASE("operations of a token are those that were published") {
  for (const Published& row : kWork) {
    CAPTURE(std::string(row.name));
    CAPTURE(row.seq_length);
    CAPTURE(std::string(row.published));
    const Recipe read = worked_recipe(row.name);
    const double flops = BuiltModel(read, shared_plugins()).flops(row.seq_length);
    CAPTURE(flops);
    CHECK(std::fabs(flops / row.flops - 1) <= row.within);
  }
}

TEST_CASE("parameters that a token meets are as many as published") {
  for (const Active& row : kActive) {
    CAPTURE(std::string(row.name));
    CAPTURE(std::string(row.published));
    const Recipe read = worked_recipe(row.name);
    const BuiltModel model(read, shared_plugins());
    const Node& section = read.config.root().at("model");
    const double table =
        static_cast<double>(section.at("vocab_size").as_int() * section.at("hidden_size").as_int());
    const double active = model.flops(0) / 6 + table;
    CAPTURE(active);
    CHECK(std::fabs(active - row.parameters) < row.unit);
  }
}

TEST_CASE("without attention scores, a token's operations are six for each weight that it meets") {
  size_t models = 0;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Recipe read = worked_recipe(name);
    // In a T5, a token of the encoder and one of the decoder meet different weights.
    if (lacks_model(read) || read.settings.model.type == "t5") continue;
    const BuiltModel model(read, shared_plugins());
    CHECK(model.flops(0) == doctest::Approx(6 * products_of(model, read)).epsilon(1e-6));
    CHECK(model.flops(4096) > model.flops(0));
    ++models;
  }
  CHECK(models > 30);
}
