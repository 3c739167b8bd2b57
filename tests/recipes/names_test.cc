// Former and foreign names of settings over several files.
#include <doctest/doctest.h>

#include <filesystem>

#include "mtrain/base/error.h"
#include "mtrain/train/recipe.h"

using namespace mtrain;

namespace {

Recipe read(const std::string& body, std::vector<OverrideText> overrides = {}) {
  RecipeRequest request{
      .recipe = MT_SOURCE_DIR "/recipes/names.yaml",
      .text = "defaults: [model: llama3_8b, _self_]\ndataset: {type: gpt, path: x}\n" + body,
      .directory = {},
      .overrides = std::move(overrides),
      .cluster = {}};
  fs::path before = fs::current_path();
  fs::current_path(MT_SOURCE_DIR);  // whose recipes/ is searched
  Recipe out = read_recipe(request, PluginHost({fs::path(MT_BINARY_DIR) / "lib" / "mtrain" / "plugins"}));
  fs::current_path(before);
  return out;
}

int warnings(const Report& report, const std::string& code) {
  int count = 0;
  for (const auto& d : report.diagnostics()) count += d.severity == Severity::warning && d.code == code;
  return count;
}

}  // namespace

TEST_CASE("a recipe may say by an old name what its group says by the new one") {
  Recipe recipe = read("train: {steps: 10}\nmodel: {num_layers: 4, num_attention_heads: 16}\n");
  CHECK_MESSAGE(recipe.report.ok(), recipe.report.text());
  CHECK(recipe.config.root().at("model.layers").as_int() == 4);
  CHECK(recipe.config.root().at("model.heads").as_int() == 16);
  CHECK(warnings(recipe.report, "renamed") == 2);
  Recipe overridden = read("train: {steps: 10}\nmodel: {num_layers: 4}\n", {{"model.layers=6", 2}});
  CHECK(overridden.config.root().at("model.layers").as_int() == 6);
  Recipe foreign = read("train: {steps: 10}\n", {{"model.num_layers=6", 2}});
  CHECK(foreign.config.root().at("model.layers").as_int() == 6);
}

TEST_CASE("two names in one file are a conflict") {
  Recipe recipe = read("train: {steps: 10, train_iters: 11}\n");
  CHECK_FALSE(recipe.report.ok());
  CHECK(recipe.report.text().find("error[conflict]") != std::string::npos);
}
