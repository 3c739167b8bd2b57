// Former and foreign names of settings over several files.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

using namespace mtrain;

namespace {

Recipe read(const std::string& body, std::vector<OverrideText> overrides = {},
            Cluster cluster = {}) {
  RecipeRequest request{
      .recipe = (testing::source_root() / "recipes/names.yaml").string(),
      .text = "defaults: [model: llama3_8b, _self_]\ndataset: {type: gpt, path: x}\n" + body,
      .directory = {},
      .overrides = std::move(overrides),
      .cluster = std::move(cluster)};
  fs::path before = fs::current_path();
  fs::current_path(testing::source_root());  // whose recipes/ is searched
  Recipe out = read_recipe(request, testing::built_plugins());
  fs::current_path(before);
  return out;
}

int warnings(const Report& report, const std::string& code) {
  int count = 0;
  for (const auto& d : report.diagnostics())
    count += d.severity == Severity::warning && d.code == code;
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

TEST_CASE("a recipe asks about its surroundings") {
  std::string body =
      "train: {steps: 10}\n"
      "run: {name: \"${run:name} on ${gpu:name} of ${gpu:memory_gb} GB\", dir: \"${cwd:}/x\"}\n";
  Recipe recipe = read(body, {}, {.world_size = 8, .gpu = "h200"});
  CHECK(recipe.config.root().at("run.name").as_text().ends_with("names.yaml on h200 of 141 GB"));
  CHECK(recipe.config.root().at("run.dir").as_text() == (testing::source_root() / "x").string());
  Recipe text =
      read("train: {steps: 10}\nrun: {name: \"${file_text:recipes/tokenizer/byte.yaml}\"}\n");
  CHECK(text.config.root().at("run.name").as_text().starts_with("# "));
  std::string nameless = read(body).report.text();
  CHECK(nameless.find("no type of GPU was given") != std::string::npos);
  std::string missing =
      read("train: {steps: 10}\nrun: {name: \"${file_text:nothing.txt}\"}\n").report.text();
  CHECK(missing.find("nothing.txt") != std::string::npos);
  CHECK(missing.find("names.yaml:4") != std::string::npos);
}

TEST_CASE("file_text reads the recipe's folder and nothing else") {
  auto report = [](const std::string& file) {
    return read("train: {steps: 10}\nrun: {name: \"${file_text:" + file + "}\"}\n").report.text();
  };
  for (const char* file : {"recipes/tokenizer/byte.yaml", "recipes/../recipes/tokenizer/byte.yaml"})
    CHECK(report(file).find("error[interpolation]") == std::string::npos);
  for (const char* file : {"/etc/hostname", "../../etc/hostname", "recipes/../../outside.txt"}) {
    CAPTURE(file);
    std::string text = report(file);
    CHECK(text.find("file_text reads only files in the recipe's folder") != std::string::npos);
    CHECK(text.find("help: copy the text into the recipe's folder, or: export NAME=") !=
          std::string::npos);
  }
  for (const char* file : {".gitignore", ".git/HEAD", "recipes/.hidden/x"})
    CHECK(report(file).find("file_text does not read hidden files and folders") !=
          std::string::npos);
  fs::path link = testing::source_root() / cat("file-text-link-", ::getpid());
  fs::create_symlink("/etc/hostname", link);
  CHECK(report(link.filename().string()).find("is outside of it, at /etc/hostname") !=
        std::string::npos);
  fs::remove(link);
}

TEST_CASE("a name that is made of a secret is not what a run goes by") {
  ::setenv("MTRAIN_TEST_TOKEN", "hush", 1);
  ::setenv("MTRAIN_TEST_PLACE", "here", 1);
  Recipe secret = read("train: {steps: 10}\nrun: {name: \"a-${oc.env:MTRAIN_TEST_TOKEN}\"}\n");
  CHECK(secret.settings.run.name == "a-hush");
  CHECK(secret.name == read("train: {steps: 10}\n").name);
  CHECK(read("train: {steps: 10}\nrun: {name: \"a-${oc.env:MTRAIN_TEST_PLACE}\"}\n").name ==
        "a-here");
  ::unsetenv("MTRAIN_TEST_TOKEN");
  ::unsetenv("MTRAIN_TEST_PLACE");
}
