// Secrets stay out of everything that a run leaves behind, however they came in.
#include <doctest/doctest.h>

#include "mtrain/train/saved_config.h"

using namespace mtrain;

namespace {

struct WithToken {
  std::string token;
  int64_t depth = 3;
  void bind(Fields& f) {
    f("token", token, "a key").secret();
    f("depth", depth, "how deep");
  }
};

SchemaCatalog catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<WithToken>("logger", "where to"));
  return out;
}

std::string everything(const SavedConfig& saved) {
  std::string out = to_json(saved) + saved.raw + saved.resolved + saved.provenance + saved.environment;
  for (const auto& [name, text] : saved.files) out += name + text;
  for (const auto& override : saved.overrides) out += override;
  return out;
}

}  // namespace

TEST_CASE("a secret is in no saved text: not from the recipe, an override, a shadowed value or an expression") {
  Recipe recipe;
  recipe.directory = "/somewhere";
  Report report;
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text = "logger: {token: hush-one, depth: 5}  # hush-one\nother: 1\n";
  request.overrides = {{"logger.token='hush-two'", 2}, {"logger.token='${oc.env:NOT_SET_ANYWHERE,hush-three}'", 3}};
  recipe.config = ConfigContainer::load(request, catalog(), report);
  REQUIRE(recipe.config.root().find("logger.token")->as_text() == "hush-three");
  SavedConfig saved = saved_config(recipe, PluginHost({}), "data", "tokenizer", "cpu, level v3");
  std::string all = everything(saved);
  CHECK_MESSAGE(all.find("hush") == std::string::npos, all);
  CHECK(all.find("logger.token") != std::string::npos);
  CHECK(all.find("depth: 5") != std::string::npos);
}

TEST_CASE("saved texts survive the way through JSON and through a folder") {
  Recipe recipe;
  recipe.directory = "/somewhere";
  Report report;
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text = "logger: {depth: 5}  # \xC3\xA9\n";
  request.overrides = {{"logger.depth=7", 2}};
  recipe.config = ConfigContainer::load(request, catalog(), report);
  SavedConfig saved = saved_config(recipe, PluginHost({}), "data", "tokenizer", "cpu, level v3");
  saved.files.emplace_back("model/x", "layers: 3\n");
  SavedConfig json = saved_config_from_json(to_json(saved), "here");
  CHECK(json.raw == saved.raw);
  CHECK(json.files == saved.files);
  CHECK(json.overrides == saved.overrides);
  CHECK(origins_of(json) == origins_of(saved));
  CHECK(origins_of(saved).at("logger.depth") == "command line, argument 2");
  CHECK(changed_since(saved, json).empty());
  CHECK(identity_of(json).data == "data");

  fs::path folder = fs::temp_directory_path() / "mtrain-saved-config-test";
  fs::remove_all(folder);
  write_saved_config(saved, folder);
  SavedConfig read = read_saved_config(folder);
  CHECK(read.raw == saved.raw);
  CHECK(read.files == saved.files);
  CHECK(read.overrides == saved.overrides);
  CHECK(read.resolved == saved.resolved);
  CHECK(read.provenance == saved.provenance);
  fs::remove_all(folder);
  CHECK_THROWS_AS(saved_config_from_json("[1]", "here"), Error);
}
