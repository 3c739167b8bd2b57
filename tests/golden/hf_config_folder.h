// Folders of Hugging Face with changed config.json, and what they are read as; for the tests in
// this folder.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "built_plugins.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

namespace mtrain::testing {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

inline fs::path here() { return source_root() / "tests/golden"; }

inline const HfFamilies& families() {
  static const HfFamilies all = HfFamilies::read(shared_plugins().folders());
  return all;
}

inline const SchemaCatalog& catalog() {
  static const SchemaCatalog all = schema_catalog(shared_plugins());
  return all;
}

inline std::string model_plugin(const std::string& config_json) {
  return hf_model_plugin(config_json, "config.json", families(), model_schemas(catalog()));
}

inline HfFolderConfig read(const Json& config, const char* plugin, int64_t seq_length = 32,
                           std::vector<std::string> ignored = {}) {
  HfTarget target{.families = families(),
                  .plugin = plugin,
                  .schemas = {catalog().section("model"), catalog().component("model", plugin)},
                  .schema_of = model_schemas(catalog()),
                  .seq_length = seq_length,
                  .ignored = std::move(ignored)};
  REQUIRE(target.schemas[1]);
  return read_hf_config(config.dump(), "config.json", target);
}

/// Setting to value, as a recipe shows it.
inline std::map<std::string, std::string> values(const HfFolderConfig& config) {
  std::map<std::string, std::string> out;
  for (const auto& setting : config.settings) out[setting.path] = brief(setting.value);
  return out;
}

inline Json tiny(const char* set) {
  return Json::parse(std::ifstream(here() / set / "config.json"));
}

/// A folder with weights whose config.json differs from the golden one.
struct Folder {
  explicit Folder(const char* set, const Json& changes)
      : path(fs::temp_directory_path() / cat("mtrain-hf-config-", ::getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
    fs::copy_file(here() / set / "model.safetensors", path / "model.safetensors");
    Json config = tiny(set);
    config.update(changes);
    std::ofstream(path / "config.json") << config.dump();
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

inline Recipe recipe_of(const fs::path& folder, const std::string& model) {
  const std::string text = cat("model: {init_from: ", folder.string(), ", seq_length: 16, ", model,
                               "}\ntokenizer: {type: byte}\ndataset: {type: mock}\noptimizer: "
                               "{type: adamw}\ntrain: {steps: 1}\n");
  return read_recipe({.recipe = "test",
                      .text = text,
                      .directory = fs::temp_directory_path(),
                      .overrides = {},
                      .cluster = {}},
                     shared_plugins());
}

inline void expect(const Recipe& recipe, std::initializer_list<const char*> parts) {
  CHECK_FALSE(recipe.report.ok());
  for (const char* part : parts)
    CHECK_MESSAGE(recipe.report.text().find(part) != std::string::npos, recipe.report.text());
}

}  // namespace mtrain::testing
