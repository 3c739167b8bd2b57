// config.json of Hugging Face folders: every key that transformers writes for the families that are
// read has a meaning here, and what a model plugin does not compute is refused by name.
#include "mtrain/recipe/hf_config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/recipe/hf_families.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

using namespace mtrain;
using testing::has;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

fs::path here() { return testing::source_root() / "tests/golden"; }

PluginHost& plugins() {
  static PluginHost host({testing::build_root() / "lib/mtrain/plugins"});
  return host;
}

HfFolderConfig read(const Json& config, const char* plugin, int64_t seq_length = 32,
                    std::vector<std::string> ignored = {}) {
  const SchemaCatalog catalog = schema_catalog(plugins());
  HfTarget target{.plugin = plugin,
                  .schemas = {catalog.section("model"), catalog.component("model", plugin)},
                  .seq_length = seq_length,
                  .ignored = std::move(ignored)};
  REQUIRE(target.schemas[1]);
  return read_hf_config(config.dump(), "config.json", target);
}

/// Setting to value, as a recipe shows it.
std::map<std::string, std::string> values(const HfFolderConfig& config) {
  std::map<std::string, std::string> out;
  for (const auto& setting : config.settings) out[setting.path] = brief(setting.value);
  return out;
}

Json tiny(const char* set) { return Json::parse(std::ifstream(here() / set / "config.json")); }

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

Recipe recipe_of(const fs::path& folder, const std::string& model) {
  const std::string text = cat("model: {init_from: ", folder.string(), ", seq_length: 16, ", model,
                               "}\ntokenizer: {type: byte}\ndataset: {type: mock}\noptimizer: "
                               "{type: adamw}\ntrain: {steps: 1}\n");
  return read_recipe({.recipe = "test",
                      .text = text,
                      .directory = fs::temp_directory_path(),
                      .overrides = {},
                      .cluster = {}},
                     plugins());
}

void expect(const Recipe& recipe, std::initializer_list<const char*> parts) {
  CHECK_FALSE(recipe.report.ok());
  for (const char* part : parts)
    CHECK_MESSAGE(recipe.report.text().find(part) != std::string::npos, recipe.report.text());
}

}  // namespace

TEST_CASE(
    "every key that transformers writes is mapped, declared harmless, or held against what the "
    "plugin computes") {
  const Json golden = Json::parse(std::ifstream(here() / "hf_config_keys/keys.json"));
  const SchemaCatalog catalog = schema_catalog(plugins());
  int keys = 0;
  for (const auto& [type, defaults] : golden.at("families").items()) {
    CAPTURE(type);
    const HfFamily* family = find_hf_family(type, "");
    REQUIRE(family);
    const std::string plugin(family->plugin);
    const Schema* schema = catalog.component("model", plugin);
    REQUIRE(schema);
    for (const auto& [key, value] : defaults.items()) {
      CAPTURE(key);
      ++keys;
      if (key == "rope_parameters") continue;  // its own keys are
      const bool mapped = !read(Json{{key, 1}}, plugin.c_str()).settings.empty();
      const HfKey* rule = find_hf_key(family, key);
      CHECK((mapped || rule));
      if (rule && (rule->rule == HfKeyRule::harmless || rule->rule == HfKeyRule::only))
        CHECK_FALSE(rule->reason.empty());
    }
    // What transformers takes for granted is what the plugin computes.
    const HfFolderConfig config = read(defaults, plugin.c_str());
    for (const auto& refusal : config.refused) FAIL_CHECK(refusal.what);
  }
  CHECK(golden.at("families").size() == 5);
  CHECK(keys > 150);
}

TEST_CASE(
    "values that the plugin does not compute are refused by name, with what the user can do") {
  struct Case {
    const char *set, *plugin;
    Json change;
    const char* key;
    std::string fix;
  };
  const std::vector<Case> cases = {
      {"llama_tiny",
       "llama",
       {{"hidden_act", "gelu"}},
       "hidden_act",
       "model.init_ignore=[hidden_act]"},
      {"llama_tiny", "llama", {{"mlp_bias", true}}, "mlp_bias", "model.init_ignore=[mlp_bias]"},
      {"llama_tiny", "llama", {{"sliding_window", 20}}, "sliding_window", "model.seq_length=20"},
      {"llama_tiny",
       "llama",
       {{"layer_types", {"full_attention", "chunked_attention"}}},
       "layer_types",
       "init_ignore"},
      {"llama_tiny",
       "llama",
       {{"residual_multiplier", 2.0}},
       "residual_multiplier",
       "model.init_ignore=[residual_multiplier]"},
      {"llama_tiny",
       "llama",
       {{"quantization_config", {{"bits", 4}}}},
       "quantization_config",
       "init_ignore"},
      {"llama_tiny",
       "llama",
       {{"rope_scaling",
         {{"rope_type", "llama3"},
          {"twist", 2},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 32}}}},
       "rope_scaling.twist",
       "init_ignore"},
      {"llama_tiny",
       "llama",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
       "rope_scaling.rope_type",
       "init_ignore"},
      {"gpt2_tiny", "gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights", "init_ignore"},
      {"gpt2_tiny", "gpt2", {{"add_cross_attention", true}}, "add_cross_attention", "init_ignore"},
      {"bert_tiny",
       "bert",
       {{"position_embedding_type", "relative_key"}},
       "position_embedding_type",
       "init_ignore"},
      {"bert_tiny", "bert", {{"is_decoder", true}}, "is_decoder", "init_ignore"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.key);
    Json config = tiny(c.set);
    CHECK(read(config, c.plugin).refused.empty());
    config.update(c.change);
    const HfFolderConfig got = read(config, c.plugin);
    REQUIRE(got.refused.size() == 1);
    CHECK(got.refused[0].key == c.key);
    CHECK(got.refused[0].what.starts_with(cat(c.key, " is ")));
    CHECK_MESSAGE(got.refused[0].fix.find(c.fix) != std::string::npos, got.refused[0].fix);
    CHECK(read(config, c.plugin, 32, {c.key}).refused.empty());
  }
  // transformers has no defaults for these.
  Json scaling = tiny("llama_tiny");
  scaling["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  const HfFolderConfig lacking = read(scaling, "llama");
  REQUIRE(lacking.refused.size() == 3);
  CHECK(lacking.refused[2].what ==
        "rope_scaling.rope_type is llama3, which needs "
        "rope_scaling.original_max_position_embeddings");
  CHECK(read(scaling, "llama", 32,
             {"rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor",
              "rope_scaling.original_max_position_embeddings"})
            .refused.empty());
  Json window = tiny("llama_tiny");
  window["sliding_window"] = 32;
  CHECK(read(window, "llama").refused.empty());
  window["sliding_window"] = 8;
  window["layer_types"] = {"full_attention", "full_attention"};
  CHECK(read(window, "llama").refused.empty());
}

TEST_CASE("the architecture decides which plugin reads a folder, and is named") {
  const Json other = {
      {"architectures", {"Qwen2ForCausalLM"}}, {"model_type", "qwen2"}, {"use_mrope", true}};
  const HfFolderConfig qwen = read(other, "llama");
  REQUIRE(qwen.refused.size() == 1);
  CHECK(qwen.refused[0].what ==
        "this folder is a Qwen2ForCausalLM; the model plugin llama reads LlamaForCausalLM and "
        "MistralForCausalLM");
  CHECK(qwen.refused[0].fix.find("biases of queries, keys and values") != std::string::npos);
  CHECK(qwen.settings.empty());
  CHECK(read(tiny("gpt2_tiny"), "llama").refused.at(0).fix == "set model.type=gpt2");
  CHECK(read(Json{{"model_type", "gpt2"}}, "bert").refused.at(0).what.find("is a gpt2;") !=
        std::string::npos);
  CHECK(read(Json{{"architectures", {"LlamaForSequenceClassification"}}, {"model_type", "llama"}},
             "llama")
            .refused.size() == 1);
  CHECK(read(Json{{"architectures", {"NewForCausalLM"}}, {"model_type", "new"}}, "llama", 32,
             {"architectures"})
            .refused.empty());

  CHECK(hf_model_plugin(tiny("llama_tiny").dump(), "config.json") == "llama");
  CHECK(hf_model_plugin(R"({"model_type": "mixtral"})", "config.json") == "moe");
  for (const char* none :
       {R"({"model_type": "qwen2"})", R"({"architectures": ["NewForCausalLM"]})", "{}"})
    CHECK_THROWS_AS(hf_model_plugin(none, "config.json"), Error);
}

TEST_CASE("what config.json omits has the default of the config class") {
  const Json golden = Json::parse(std::ifstream(here() / "hf_config_keys/keys.json"));
  for (const auto& [type, defaults] : golden.at("families").items()) {
    CAPTURE(type);
    const std::string plugin(find_hf_family(type, "")->plugin);
    Json said = defaults;
    said.erase("head_dim");  // computed from hidden_size and num_attention_heads, here as there
    const HfFolderConfig explicit_config = read(said, plugin.c_str()),
                         empty = read(Json{{"model_type", type}}, plugin.c_str());
    CHECK(values(empty) == values(explicit_config));
    CHECK(empty.dropouts == explicit_config.dropouts);
    CHECK(empty.refused.empty());
    CHECK(empty.settings.size() > 8);
    for (const auto& setting : empty.settings) CHECK(setting.omitted);
    for (auto& [key, value] : said.items())
      if (key != "model_type" && key != "sliding_window" && key != "num_key_value_heads")
        value = nullptr;
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
  REQUIRE(window.refused.size() == 1);
  CHECK(window.refused[0].what.starts_with(
      "sliding_window is not in config.json, and its default in transformers is 4096; "));
  CHECK(read(Json{{"model_type", "mistral"}, {"sliding_window", nullptr}}, "llama", 8192)
            .refused.empty());
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

TEST_CASE("one setting in two places of config.json has one value") {
  struct Case {
    const char *set, *plugin;
    Json change;
    std::string what;
    const char* ignored;
  };
  const std::vector<Case> cases = {
      {"llama_tiny",
       "llama",
       {{"rope_parameters", {{"rope_theta", 10000.0}}}},
       "rope_parameters.rope_theta is 10000.0, but rope_theta is 500000.0",
       "rope_theta"},
      {"llama_tiny",
       "llama",
       {{"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 32}}},
        {"rope_parameters", {{"rope_type", "llama3"}, {"factor", 4}}}},
       "rope_parameters.factor is 4, but rope_scaling.factor is 8.0",
       "rope_parameters.factor"},
      {"llama_tiny",
       "llama",
       {{"rope_scaling",
         {{"rope_type", "llama3"},
          {"type", "default"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 32}}}},
       "rope_scaling.rope_type is \"llama3\", but rope_scaling.type is \"default\"",
       "rope_scaling.type"},
      {"gpt2_tiny",
       "gpt2",
       {{"hidden_size", 64}},
       "hidden_size is 64, but n_embd is 32",
       "hidden_size"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.what);
    Json config = tiny(c.set);
    config.update(c.change);
    const HfFolderConfig got = read(config, c.plugin);
    REQUIRE(got.refused.size() == 1);
    CHECK(got.refused[0].what == c.what);
    CHECK(got.refused[0].fix.find(cat("model.init_ignore=[", c.ignored, "]")) != std::string::npos);
    for (const std::string& place : {std::string(c.ignored), c.what.substr(0, c.what.find(' '))})
      CHECK(read(config, c.plugin, 32, {place}).refused.empty());
  }
  Json gpt2 = tiny("gpt2_tiny");
  gpt2["hidden_size"] = 64;
  CHECK(values(read(gpt2, "gpt2", 32, {"hidden_size"})).at("model.hidden_size") == "32");
  CHECK(values(read(gpt2, "gpt2", 32, {"n_embd"})).at("model.hidden_size") == "64");
  Json same = tiny("llama_tiny");
  same["rope_parameters"] = {{"rope_theta", 500000}, {"rope_type", "default"}, {"type", "default"}};
  CHECK(read(same, "llama").refused.empty());
  CHECK(values(read(same, "llama")).at("model.rope.scaling") == "none");
  same["rope_parameters"]["rope_theta"] = 10000;
  CHECK(values(read(same, "llama", 32, {"rope_theta"})).at("model.rope.theta") == "10000");
  const std::string top = values(read(tiny("llama_tiny"), "llama")).at("model.rope.theta");
  CHECK(values(read(same, "llama", 32, {"rope_parameters.rope_theta"})).at("model.rope.theta") ==
        top);
}

TEST_CASE("model_type and architectures of two families are refused with both names") {
  Json config = tiny("llama_tiny");
  config["architectures"] = {"MistralForCausalLM"};
  for (const char* plugin : {"llama", "gpt2"}) {
    const HfFolderConfig got = read(config, plugin);
    REQUIRE(got.refused.size() == 1);
    CHECK(got.refused[0].what ==
          "model_type llama and architectures MistralForCausalLM disagree: MistralForCausalLM "
          "belongs to model_type mistral");
    CHECK(got.refused[0].fix.find("correct the one") != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(hf_model_plugin(config.dump(), "config.json"), doctest::Contains("disagree"),
                       Error);
  CHECK(read(config, "llama", 32, {"architectures"}).refused.empty());
}

TEST_CASE("dropout is a matter of training: taken over where the plugin has it, else named") {
  Json published = tiny("gpt2_tiny");
  published.update(Json{{"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}});
  const HfFolderConfig gpt2 = read(published, "gpt2");
  CHECK(gpt2.refused.empty());
  CHECK(gpt2.dropouts == std::vector<std::string>{"attn_pdrop 0.1"});
  published["embd_pdrop"] = 0.2;
  CHECK(read(published, "gpt2").dropouts ==
        std::vector<std::string>{"attn_pdrop 0.1", "embd_pdrop 0.2"});
  CHECK(read(Json{{"attention_dropout", 0.0}}, "llama").dropouts.empty());

  const Folder folder("gpt2_tiny",
                      {{"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}});
  const Recipe taken = recipe_of(folder.path, "type: gpt2");
  CHECK_MESSAGE(taken.report.ok(), taken.report.text());
  CHECK(taken.config.root().find("model.dropout")->as_double() == 0.1);
  CHECK(taken.report.warnings() == 1);
  CHECK_MESSAGE(taken.report.text().find("attn_pdrop 0.1") != std::string::npos,
                taken.report.text());
  const Recipe own = recipe_of(folder.path, "type: gpt2, dropout: 0.3");
  CHECK_MESSAGE(own.report.ok(), own.report.text());
  CHECK(own.config.root().find("model.dropout")->as_double() == 0.3);
}

TEST_CASE("the weight of the loss that balances experts comes from the folder") {
  const HfFolderConfig mixtral = read(Json{{"model_type", "mixtral"},
                                           {"router_aux_loss_coef", 0.0},
                                           {"num_local_experts", 4},
                                           {"output_router_logits", true},
                                           {"router_jitter_noise", 0.0}},
                                      "moe");
  CHECK(mixtral.refused.empty());
  bool found = false;
  for (const auto& setting : mixtral.settings) {
    if (setting.path != "model.moe.router.aux_loss_coeff") continue;
    found = true;
    CHECK(setting.training);
    REQUIRE(setting.value.is_list());
    CHECK(setting.value.items().at(0).as_double() == 0.0);
  }
  CHECK(found);
}

TEST_CASE("frequencies of blocks with experts are read as the families mean them") {
  auto read_with = [](const char* key, int64_t n) {
    return read(Json{{"model_type", "mixtral"}, {key, n}}, "moe");
  };
  auto layer_freq = [](const HfFolderConfig& config) {
    for (const auto& setting : config.settings)
      if (setting.path == "model.moe.layer_freq") return setting.value.as_int();
    return int64_t{1};  // the default
  };
  // moe_layer_freq n selects blocks 0, n ...; decoder_sparse_step n, like ours, n - 1, 2n - 1 ...
  const auto every = read_with("moe_layer_freq", 1), second = read_with("moe_layer_freq", 2),
             step = read_with("decoder_sparse_step", 2);
  CHECK(every.refused.empty());
  CHECK(layer_freq(every) == 1);
  REQUIRE(second.refused.size() == 1);
  CHECK(second.refused[0].key == "moe_layer_freq");
  CHECK(second.refused[0].what.find("experts in every block") != std::string::npos);
  CHECK(step.refused.empty());
  CHECK(layer_freq(step) == 2);
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
  const Folder folder("llama_tiny", {{"hidden_act", "gelu"}, {"sliding_window", 8}});
  expect(recipe_of(folder.path, "type: llama"),
         {"config.json", "hidden_act is \"gelu\"", "sliding_window is 8", "model.seq_length=8",
          "model.init_ignore=[hidden_act]"});
  const Recipe accepted =
      recipe_of(folder.path, "type: llama, init_ignore: [hidden_act, sliding_window]");
  CHECK_MESSAGE(accepted.report.ok(), accepted.report.text());
  CHECK(accepted.config.root().find("model.layers")->as_int() == 2);
  expect(recipe_of(folder.path, "type: gpt2"),
         {"this folder is a LlamaForCausalLM", "GPT2LMHeadModel", "set model.type=llama"});
}
