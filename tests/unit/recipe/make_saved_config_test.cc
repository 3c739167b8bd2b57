// Secrets stay out of everything that a run leaves behind, however they came in.
#include "mtrain/recipe/make_saved_config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>

#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/provenance.h"

using namespace mtrain;

namespace {

struct WithToken {
  std::string token, address, project;
  std::vector<std::string> hosts;
  int64_t depth = 3;
  void bind(Fields& f) {
    f("token", token, "a key").secret();
    f("address", address, "where to");
    f("project", project, "what for");
    f("hosts", hosts, "through what");
    f("depth", depth, "how deep");
  }
};

SchemaCatalog catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<WithToken>("logger", "where to"));
  return out;
}

std::string everything(const SavedConfig& saved) {
  std::string out =
      to_json(saved) + saved.raw + saved.resolved + saved.provenance + saved.environment;
  for (const auto& [name, text] : saved.files) out += name + text;
  for (const auto& override : saved.overrides) out += override;
  return out;
}

}  // namespace

TEST_CASE(
    "a secret is in no saved text: not from the recipe, an override, a shadowed value or an "
    "expression") {
  Recipe recipe;
  recipe.directory = "/somewhere";
  Report report;
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text = "logger: {token: hush-one, depth: 5}  # hush-one\nother: 1\n";
  request.overrides = {{"logger.token='hush-two'", 2},
                       {"logger.token='${oc.env:NOT_SET_ANYWHERE,hush-three}'", 3}};
  recipe.config = ConfigContainer::load(request, catalog(), report);
  REQUIRE(recipe.config.root().find("logger.token")->as_text() == "hush-three");
  SavedConfig saved =
      make_saved_config(recipe, PluginHost({}), "data", "tokenizer", "cpu, level v3");
  std::string all = everything(saved);
  CHECK_MESSAGE(all.find("hush") == std::string::npos, all);
  CHECK(all.find("logger.token") != std::string::npos);
  CHECK(all.find("depth: 5") != std::string::npos);
}

TEST_CASE(
    "a value of a secret variable is saved as the expression that reads it, and read again from "
    "there") {
  ::setenv("MTRAIN_TEST_TOKEN", "hush-four", 1);
  ::setenv("MTRAIN_TEST_PLACE", "somewhere", 1);
  Recipe recipe;
  recipe.directory = "/somewhere";
  Report report;
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text =
      "logger: {project: \"${oc.env:MTRAIN_TEST_PLACE}\", hosts: [a, \"b-${..address}\"]}\n";
  request.overrides = {{"logger.address='https://${oc.env:MTRAIN_TEST_TOKEN}@host'", 2}};
  recipe.config = ConfigContainer::load(request, catalog(), report);
  REQUIRE_MESSAGE(report.ok(), report.text());
  CHECK(recipe.config.root().at("logger.address").as_text() == "https://hush-four@host");
  SavedConfig saved =
      make_saved_config(recipe, PluginHost({}), "data", "tokenizer", "cpu, level v3");
  std::string all = everything(saved) + why_text(recipe.config, "logger.address") +
                    write_json(why_node(recipe.config, "logger"));
  CHECK_MESSAGE(all.find("hush") == std::string::npos, all);
  CHECK(saved.resolved.find("https://${oc.env:MTRAIN_TEST_TOKEN}@host") != std::string::npos);
  CHECK(saved.resolved.find("project: somewhere") !=
        std::string::npos);  // no secret: what it was, for ever

  request.text = saved.resolved;
  request.overrides.clear();
  ::setenv("MTRAIN_TEST_TOKEN", "other", 1);
  ConfigContainer again = ConfigContainer::load(request, catalog(), report);
  REQUIRE_MESSAGE(report.ok(), report.text());
  CHECK(again.root().at("logger.address").as_text() == "https://other@host");
  CHECK(again.root().at("logger.hosts.1").as_text() == "b-https://other@host");
  CHECK(again.to_yaml() == saved.resolved);
  ::unsetenv("MTRAIN_TEST_TOKEN");
  ::unsetenv("MTRAIN_TEST_PLACE");
}

TEST_CASE("the files with a run's overrides are readable by their owner alone") {
  SavedConfig saved{.raw = "a: 1\n",
                    .files = {{"model/x", "layers: 3\n"}},
                    .overrides = {"a=1"},
                    .resolved = "a: 1\n",
                    .provenance = "{}\n",
                    .environment = "{}\n"};
  fs::path folder = fs::temp_directory_path() / cat("mtrain-saved-modes-", ::getpid());
  write_saved_config(saved, folder);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    CAPTURE(entry.path().string());
    CHECK((entry.status().permissions() & fs::perms::mask) ==
          (fs::perms::owner_read | fs::perms::owner_write));
  }
  CHECK(files == 6);
  fs::remove_all(folder);
}

TEST_CASE("other builds of the program and of plugins are distinguished") {
  SavedConfig before, now;
  before.environment =
      R"({"binaries": {"mtrain": "a"}, "plugins": [{"kind": "model", "name": "llama", "sha256": "1"}, {"kind": "model", "name": "x", "sha256": "5"}]})";
  now.environment =
      R"({"binaries": {"mtrain": "b"}, "plugins": [{"kind": "model", "name": "llama", "sha256": "2"}, {"kind": "model", "name": "y", "sha256": "6"}]})";
  CHECK(changed_programs(before, now) ==
        std::vector<std::string>{"a different build of mtrain",
                                 "a different build of the plugin model llama"});
  CHECK(changed_programs(now, now).empty());
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
  SavedConfig saved =
      make_saved_config(recipe, PluginHost({}), "data", "tokenizer", "cpu, level v3");
  saved.files.emplace_back("model/x", "layers: 3\n");
  SavedConfig json = saved_config_from_json(to_json(saved), "here");
  CHECK(json.raw == saved.raw);
  CHECK(json.files == saved.files);
  CHECK(json.overrides == saved.overrides);
  CHECK(origins_of(json) == origins_of(saved));
  CHECK(origins_of(saved).at("logger.depth") == "command line, argument 2");
  CHECK(changed_since(saved, json).empty());
  CHECK(changed_data(saved, json).empty());
  const SavedConfig other =
      make_saved_config(recipe, PluginHost({}), "{\"files\":1}", "words", "cpu, level v3");
  CHECK(changed_data(saved, other).size() == 2);
  CHECK(changed_data(saved, other).front() == "tokenizer: tokenizer -> words");
  CHECK(identity_of(json).data == "data");

  fs::path folder = fs::temp_directory_path() / "mtrain-saved-config-test";
  fs::remove_all(folder);
  write_saved_config(saved, folder / "config");
  SavedConfig read = read_saved_config(folder);
  CHECK(read.raw == saved.raw);
  CHECK(read.files == saved.files);
  CHECK(read.overrides == saved.overrides);
  CHECK(read.resolved == saved.resolved);
  CHECK(read.provenance == saved.provenance);
  fs::remove_all(folder);
  CHECK_THROWS_AS(saved_config_from_json("[1]", "here"), Error);
}
