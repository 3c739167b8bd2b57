// config.json of Hugging Face folders: every key that transformers writes for the families that are
// read has a meaning here, and a folder that is refused is refused by name.
#include "mtrain/recipe/hf_config.h"

#include "has.h"
#include "hf_config_folder.h"
#include "mtrain/base/error.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE(
    "every key that transformers writes is mapped, declared harmless, or held against what the "
    "plugin computes") {
  const Json golden = Json::parse(std::ifstream(here() / "hf_config_keys/keys.json"));
  int keys = 0;
  for (const auto& [type, defaults] : golden.at("families").items()) {
    CAPTURE(type);
    const HfFamily* family = families().find(type, "");
    REQUIRE(family);
    const std::string& plugin = family->plugin;
    REQUIRE(catalog().component("model", plugin));
    for (const auto& [key, value] : defaults.items()) {
      CAPTURE(key);
      ++keys;
      if (key == "rope_parameters") continue;  // its own keys are
      const HfKey* rule = families().key(family, key);
      REQUIRE(rule);
      if (rule->rule == HfKeyRule::harmless || rule->rule == HfKeyRule::only)
        CHECK_FALSE(rule->reason.empty());
    }
    // What transformers takes for granted is what the plugin computes.
    const HfFolderConfig config = read(defaults, plugin.c_str());
    for (const auto& refusal : config.refused) FAIL_CHECK(refusal.what);
  }
  CHECK(golden.at("families").size() == 42);
  CHECK(keys > 1300);
}

TEST_CASE("the architecture decides which plugin reads a folder, and is named") {
  const Json other = {
      {"architectures", {"T5ForConditionalGeneration"}}, {"model_type", "t5"}, {"d_kv", 64}};
  const HfFolderConfig t5 = read(other, "llama");
  REQUIRE(t5.refused.size() == 1);
  CHECK(t5.refused[0].what.starts_with(
      "this folder is a T5ForConditionalGeneration; the model plugin llama reads "));
  CHECK(has(t5.refused[0].what, "LlamaForCausalLM"));
  CHECK(t5.refused[0].fix == "set model.type=t5");
  CHECK(t5.settings.empty());
  CHECK(read(tiny("gpt2_tiny"), "llama").refused.at(0).fix == "set model.type=gpt2");
  CHECK(read(Json{{"model_type", "gpt2"}}, "bert").refused.at(0).what.find("is a gpt2;") !=
        std::string::npos);
  CHECK(
      read(Json{{"architectures", {"LlamaForQuestionAnswering"}}, {"model_type", "llama"}}, "llama")
          .refused.size() == 1);
  CHECK(read(Json{{"architectures", {"NewForCausalLM"}}, {"model_type", "new"}}, "llama", 32,
             {"architectures"})
            .refused.empty());

  CHECK(model_plugin(tiny("llama_tiny").dump()) == "llama");
  CHECK(model_plugin(R"({"model_type": "mixtral"})") == "moe");
  for (const char* none :
       {R"({"model_type": "mamba"})", R"({"architectures": ["NewForCausalLM"]})", "{}"})
    CHECK_THROWS_AS(model_plugin(none), Error);
}

TEST_CASE("what config.json omits has the default of the config class") {
  const Json golden = Json::parse(std::ifstream(here() / "hf_config_keys/keys.json"));
  for (const auto& [type, defaults] : golden.at("families").items()) {
    CAPTURE(type);
    const std::string plugin(families().find(type, "")->plugin);
    Json said = defaults;
    said.erase("head_dim");  // computed from hidden_size and num_attention_heads, here as there
    const HfFolderConfig explicit_config = read(said, plugin.c_str()),
                         empty = read(Json{{"model_type", type}}, plugin.c_str());
    CHECK(values(empty) == values(explicit_config));
    CHECK(empty.dropouts == explicit_config.dropouts);
    CHECK(empty.refused.empty());
    CHECK(empty.settings.size() > 8);
    for (const auto& setting : empty.settings)
      CHECK((setting.omitted || setting.theirs.empty()));  // or the same for the whole family
    for (auto& [key, value] : said.items()) {
      const HfKey* rule = families().key(families().find(type, ""), key);
      if (key != "model_type" && !(rule && rule->null)) value = nullptr;
    }
    CHECK(values(read(said, plugin.c_str())) == values(empty));
  }
  auto kv_heads = [](Json config) {
    config["num_attention_heads"] = 4;
    return values(read(config, config.at("model_type") == "mixtral" ? "moe" : "llama"))
        .at("model.kv_heads");
  };
  CHECK(kv_heads({{"model_type", "llama"}}) == "4");
  CHECK(kv_heads({{"model_type", "llama"}, {"num_key_value_heads", nullptr}}) == "4");
  CHECK(kv_heads({{"model_type", "mistral"}}) == "8");
  CHECK(kv_heads({{"model_type", "mistral"}, {"num_key_value_heads", nullptr}}) == "4");
  CHECK(kv_heads({{"model_type", "mixtral"}, {"num_key_value_heads", 2}}) == "2");

  const HfFolderConfig window = read(Json{{"model_type", "mistral"}}, "llama", 8192);
  CHECK(values(window).at("model.attention.window") == "4096");
  const HfFolderConfig none =
      read(Json{{"model_type", "mistral"}, {"sliding_window", nullptr}}, "llama", 8192);
  CHECK(none.refused.empty());
  CHECK_FALSE(values(none).contains("model.attention.window"));
  // Another family's folder that is let pass: nothing is known of its defaults.
  CHECK(read(Json{{"architectures", {"NewForCausalLM"}}, {"model_type", "new"}}, "llama", 32,
             {"architectures"})
            .settings.empty());
}

TEST_CASE(
    "the default of an omitted key goes before the plugin's, and a recipe that differs is "
    "refused") {
  const Folder folder("llama_tiny", {{"rms_norm_eps", nullptr}, {"initializer_range", nullptr}});
  const Recipe taken = recipe_of(folder.path, "type: llama");
  CHECK_MESSAGE(taken.report.ok(), taken.report.text());
  CHECK(taken.config.root().find("model.norm_eps")->as_double() == 1e-6);
  CHECK(taken.config.root().find("model.init_std")->as_double() == 0.02);
  expect(recipe_of(folder.path, "type: llama, norm_eps: 1e-5"),
         {"1e-05 differs from",
          "which omits rms_norm_eps, so its default in transformers applies: 1e-06",
          "leave model.norm_eps out"});
  const Recipe own = recipe_of(folder.path, "type: llama, norm_eps: 1e-6, init_std: 0.5");
  CHECK_MESSAGE(own.report.ok(), own.report.text());
}

TEST_CASE("a key that is refused is reported at its place in config.json") {
  const Folder folder("llama_tiny", Json::object());
  std::ofstream(folder.path / "config.json")
      << "{\n\"model_type\": \"llama\", \"note\": \"hidden_act\",\n"
         " \"rope_scaling\": {\"rope_type\": \"llama3\",\n  \"twist\": 2},\n\"hidden_act\" : "
         "\"gelu\"}\n";
  const Recipe recipe = recipe_of(folder.path, "type: llama, init_ignore: [note]");
  const std::string file = (folder.path / "config.json").string();
  std::map<std::string, std::string> places;
  for (const auto& fault : recipe.report.diagnostics())
    places[fault.message.substr(0, fault.message.find(' '))] = fault.where.text();
  CHECK(places["rope_scaling.twist"] == file + ":4:3");
  CHECK(places["hidden_act"] == file + ":5:1");
}

TEST_CASE("model.init_ignore lists keys that are not understood: others are reported") {
  Json config = tiny("llama_tiny");
  config["rope_theta"] = 500.0;
  config["sliding_window"] = nullptr;
  HfFolderConfig got = read(config, "llama", 32, {"rope_theta", "nothere", "sliding_window"});
  REQUIRE(got.refused.size() == 1);
  CHECK(got.refused[0].what ==
        "model.init_ignore lists rope_theta, which mtrain understands: it gives model.rope.theta");
  CHECK(has(got.refused[0].fix, "config.json"));
  CHECK(got.absent == std::vector<std::string>{"nothere"});
  got = read(config, "llama", 32, {"initializer_range"});
  REQUIRE(got.refused.size() == 1);
  CHECK(has(got.refused[0].fix, "set model.init_std"));
  config.erase("rope_theta");
  config["rope_scaling"] = {{"rope_type", "default"}, {"factor", 2.0}, {"twist", 1}};
  got = read(config, "llama", 32, {"rope_scaling", "rope_scaling.twist", "rope_scaling.factor"});
  REQUIRE(got.refused.size() == 2);
  CHECK(has(got.refused[0].fix, "list each key to ignore, such as rope_scaling.factor"));
  CHECK(has(got.refused[1].what, "rope_scaling.factor, which mtrain understands"));
  CHECK(got.absent.empty());
  const Json nested = {{"model_type", "olmo3"},
                       {"rope_parameters", {{"full_attention", {{"rope_theta", 300.0}}}}}};
  got = read(nested, "llama", 32, {"rope_parameters.full_attention", "rope_parameters.other"});
  REQUIRE(got.refused.size() == 1);
  CHECK(has(got.refused[0].what, "init_ignore lists rope_parameters.full_attention, which has "));
  CHECK(has(got.refused[0].fix, "such as rope_parameters.full_attention.rope_theta"));
  CHECK(got.absent == std::vector<std::string>{"rope_parameters.other"});

  const Folder folder("llama_tiny", {{"rope_theta", 500.0}});
  expect(recipe_of(folder.path, "type: llama, init_ignore: [rope_theta]"),
         {"it gives model.rope.theta", "remove it from model.init_ignore"});
  const Recipe absent = recipe_of(folder.path, "type: llama, init_ignore: [nothere]");
  CHECK_MESSAGE(absent.report.ok(), absent.report.text());
  CHECK_MESSAGE(has(absent.report.text(), "does not have nothere"), absent.report.text());
  const Recipe none = recipe_of("''", "type: llama, init_ignore: [rope_theta]");
  CHECK_MESSAGE(none.report.ok(), none.report.text());
  CHECK_MESSAGE(has(none.report.text(), "it has no effect"), none.report.text());
}

TEST_CASE("a recipe is refused where its folder is, before anything runs") {
  const Folder folder("llama_tiny", {{"hidden_act", "gelu"}, {"attention_multiplier", 8}});
  expect(recipe_of(folder.path, "type: llama"),
         {"config.json", "hidden_act is \"gelu\"", "attention_multiplier is 8",
          "model.init_ignore=[hidden_act]"});
  const Recipe accepted =
      recipe_of(folder.path, "type: llama, init_ignore: [hidden_act, attention_multiplier]");
  CHECK_MESSAGE(accepted.report.ok(), accepted.report.text());
  CHECK(accepted.config.root().find("model.layers")->as_int() == 2);
  expect(recipe_of(folder.path, "type: gpt2"),
         {"this folder is a LlamaForCausalLM", "GPT2LMHeadModel", "set model.type=llama"});
}
