// Values of config.json: what a model plugin does not compute is refused by name, and a value that
// stands in two places, or that families write in different ways, has one meaning.
#include "has.h"
#include "hf_config_folder.h"
#include "mtrain/base/error.h"
#include "mtrain/recipe/hf_config.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

struct NotComputed {
  const char *set, *plugin;
  Json change;
  const char* key;
  std::string fix;
};
const std::vector<NotComputed> kNotComputed = {
    {"llama_tiny",
     "llama",
     {{"hidden_act", "gelu"}},
     "hidden_act",
     "model.init_ignore=[hidden_act]"},
    {"llama_tiny",
     "llama",
     {{"layer_types", {"full_attention", "chunked_attention"}}},
     "layer_types",
     "init_ignore"},
    {"llama_tiny",
     "llama",
     {{"attention_multiplier", 2.0}},
     "attention_multiplier",
     "model.init_ignore=[attention_multiplier]"},
    {"llama_tiny",
     "llama",
     {{"quantization_config", {{"bits", 4}}}},
     "quantization_config",
     "bf16 weights"},
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
    {"gpt2_tiny", "gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights", "init_ignore"},
    {"gpt2_tiny", "gpt2", {{"add_cross_attention", true}}, "add_cross_attention", "init_ignore"},
    {"bert_tiny",
     "bert",
     {{"position_embedding_type", "relative_key"}},
     "position_embedding_type",
     "init_ignore"},
    {"bert_tiny", "bert", {{"is_decoder", true}}, "is_decoder", "init_ignore"},
};

}  // namespace

TEST_CASE(
    "values that the plugin does not compute are refused by name, with what the user can do") {
  for (const auto& c : kNotComputed) {
    CAPTURE(c.key);
    Json config = tiny(c.set);
    CHECK(read(config, c.plugin).refused.empty());
    config.update(c.change);
    const HfFolderConfig got = read(config, c.plugin);
    REQUIRE(got.refused.size() == 1);
    CHECK(got.refused[0].key == c.key);
    CHECK(got.refused[0].what.starts_with(cat(c.key, " ")));
    CHECK_MESSAGE(got.refused[0].fix.find(c.fix) != std::string::npos, got.refused[0].fix);
    CHECK(read(config, c.plugin, 32, {c.key}).refused.empty());
  }
  Json chunks = tiny("llama_tiny");
  chunks["layer_types"] = {"full_attention", "chunked_attention"};
  CHECK(has(read(chunks, "llama").refused.at(0).what, "full_attention and sliding_attention"));
  // transformers has no defaults for these.
  Json scaling = tiny("llama_tiny");
  scaling["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  const HfFolderConfig lacking = read(scaling, "llama");
  REQUIRE(lacking.refused.size() == 2);
  CHECK(lacking.refused[1].what ==
        "rope_scaling.rope_type is llama3, which needs rope_scaling.high_freq_factor");
  const HfFolderConfig let_pass =
      read(scaling, "llama", 32, {"rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor"});
  CHECK(let_pass.refused.empty());
  CHECK(values(let_pass).at("model.rope.original_max_positions") ==
        std::to_string(scaling.at("max_position_embeddings").get<int>()));
  Json window = tiny("llama_tiny");
  window["sliding_window"] = 8;
  CHECK_FALSE(values(read(window, "llama")).contains("model.attention.window"));
  window["model_type"] = "mistral";
  window["architectures"] = {"MistralForCausalLM"};
  CHECK(values(read(window, "llama")).at("model.attention.window") == "8");
}

TEST_CASE("OLMo 3: transformers gives the base of rotary positions to blocks without a window") {
  auto theta = [](const Json& keys, const char* of) {
    Json config = {{"model_type", "olmo3"}};
    config.update(keys);
    return std::stod(values(read(config, "llama")).at(of));
  };
  const Json flat = {{"rope_theta", 300.0}};
  CHECK(theta(flat, "model.rope.theta") == 300);
  CHECK(theta(flat, "model.rope.local_theta") == 500000);
  CHECK(theta(Json::object(), "model.rope.local_theta") == 500000);
  const Json nested = {{"rope_parameters", {{"sliding_attention", {{"rope_theta", 20.0}}}}}};
  CHECK(theta(nested, "model.rope.local_theta") == 20);
  CHECK(theta(nested, "model.rope.theta") == 500000);
}

TEST_CASE("Qwen's windows: a switch, the blocks that have one, and lists") {
  Json config = {{"model_type", "qwen3"},
                 {"num_hidden_layers", 4},
                 {"sliding_window", 8},
                 {"max_window_layers", 3},
                 {"use_sliding_window", false}};
  auto window_of = [&] {
    const auto read_values = values(read(config, "llama"));
    auto of = [&](const char* path) {
      auto found = read_values.find(path);
      return found == read_values.end() ? std::string("-") : found->second;
    };
    return cat(of("model.attention.window"), " ", of("model.attention.window_blocks"));
  };
  CHECK(window_of() == "- -");
  config["use_sliding_window"] = true;
  CHECK(window_of() == "8 [0, 0, 0, 1]");
  config["max_window_layers"] = 0;
  CHECK(window_of() == "8 -");
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  CHECK(window_of() == "8 [1, 0, 0, 1]");
  config["max_window_layers"] = 3;  // the list says it
  CHECK(window_of() == "8 [1, 0, 0, 1]");
  config.erase("sliding_window");  // the default of the config class
  CHECK(window_of() == "4096 [1, 0, 0, 1]");
}

TEST_CASE("rotary scaling: lists of factors, and defaults that follow from other keys") {
  Json config = tiny("llama_tiny");
  config["max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"rope_type", "longrope"},
                            {"factor", 2.0},
                            {"short_factor", {1.0, 1.5}},
                            {"long_factor", {2.0, 2.5}}};
  auto got = values(read(config, "llama"));
  CHECK(got.at("model.rope.short_factor") == "[1.0, 1.5]");
  CHECK(got.at("model.rope.long_factor") == "[2.0, 2.5]");
  CHECK(got.at("model.rope.original_max_positions") == "64");
  config["rope_scaling"]["original_max_position_embeddings"] = 16;
  CHECK(values(read(config, "llama")).at("model.rope.original_max_positions") == "16");
  config["rope_scaling"].erase("long_factor");
  CHECK(read(config, "llama").refused.at(0).what ==
        "rope_scaling.rope_type is longrope, which needs rope_scaling.long_factor");
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"mscale_all_dim", 0.5}};
  const HfFolderConfig yarn = read(config, "llama");
  CHECK(yarn.refused.at(0).what ==
        "rope_scaling.rope_type is yarn, which needs rope_scaling.factor");
  // Without mscale, transformers computes the attention factor from `factor` alone.
  CHECK(values(yarn).at("model.rope.mscale") == "0.0");
}

namespace {

struct TwoPlaces {
  const char *set, *plugin;
  Json change;
  std::string what;
  const char* ignored;
};
const std::vector<TwoPlaces> kTwoPlaces = {
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

}  // namespace

TEST_CASE("one setting in two places of config.json has one value") {
  for (const auto& c : kTwoPlaces) {
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

TEST_CASE("a config.json that is nested very deep is refused") {
  const std::string deep(100000, '[');
  CHECK_THROWS_WITH_AS(model_plugin("{\"a\": " + deep + "}"), doctest::Contains("levels deep"),
                       Error);
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
  CHECK_THROWS_WITH_AS(model_plugin(config.dump()), doctest::Contains("disagree"), Error);
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

namespace {

/// Makes a folder one of a small Mixtral model.
void make_mixtral(const Folder& folder) {
  const Json config = {{"architectures", {"MixtralForCausalLM"}},
                       {"model_type", "mixtral"},
                       {"hidden_size", 48},
                       {"intermediate_size", 80},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 6},
                       {"num_key_value_heads", 2},
                       {"num_local_experts", 4},
                       {"vocab_size", 320},
                       {"max_position_embeddings", 64}};
  std::ofstream(folder.path / "config.json") << config.dump();
}

}  // namespace

TEST_CASE("settings that all models of a family share cannot be changed by the recipe") {
  const Folder folder("llama_tiny", Json::object());
  make_mixtral(folder);
  const auto with = [&](const std::string& model) {
    return recipe_of(folder.path, "type: moe" + (model.empty() ? "" : ", " + model));
  };
  const Recipe plain = with("");
  CHECK_MESSAGE(plain.report.ok(), plain.report.text());
  struct Refused {
    const char *model, *path, *value;
  };
  for (const Refused& c : std::vector<Refused>{
           {"moe: {router: {score: sigmoid}}", "moe.router.score", "softmax"},
           {"moe: {router: {pre_softmax: true}}", "moe.router.pre_softmax", "false"},
           {"moe: {router: {scaling: 2}}", "moe.router.scaling", "1"},
           {"moe: {router: {groups: 2, group_top_k: 1}}", "moe.router.groups", "0"},
           {"moe: {router: {bias: true}}", "moe.router.bias", "false"},
           {"moe: {shared_ffn_hidden_size: 16}", "moe.shared_ffn_hidden_size", "0"},
           {"moe: {layer_freq: 2}", "moe.layer_freq", "1"},
           {"moe: {ffn_hidden_size: 64}", "moe.ffn_hidden_size", "80"},
           {"head_dim: 16", "head_dim", "8"},
           {"attention: {window: 8}", "attention.window", "0"},
           {"logit_cap: 30", "logit_cap", "0"},
           {"norm: layer", "norm", "rms"},
           {"activation: gelu", "activation", "silu"}}) {
    CAPTURE(c.model);
    const std::string path = c.path, value = c.value;
    expect(with(c.model),
           {"error[init-from] model.", path.c_str(), value.c_str(), "model.init_ignore=["});
    // Whoever wants another function says so.
    const Recipe changed =
        with(cat(c.model, ", init_ignore: [", path,
                 path == "moe.router.groups" ? ", moe.router.group_top_k" : "", "]"));
    CHECK_MESSAGE(changed.report.text().find("init-") == std::string::npos, changed.report.text());
  }
  // The family's values, in any notation, and settings that only training uses.
  for (const char* same :
       {"head_dim: 8", "head_dim: 0", "moe: {ffn_hidden_size: 80}", "moe: {router: {scaling: 1.0}}",
        "moe: {capacity_factor: 1.5, drop_policy: position}", "init_std: 0.5",
        "attention: {dropout: 0.1}", "moe: {router: {z_loss_coeff: 0.1, balancing: [none]}}"}) {
    CAPTURE(same);
    const Recipe recipe = with(same);
    CHECK_MESSAGE(recipe.report.ok(), recipe.report.text());
  }
  // What the folder gives is not the recipe's to choose.
  expect(with("norm_eps: 1e-3, init_ignore: [norm_eps]"),
         {"lists the setting norm_eps, which the folder gives by rms_norm_eps"});
  const Recipe unknown = with("init_ignore: [moe.router.nothing]");
  CHECK_MESSAGE(has(unknown.report.text(), "does not have moe.router.nothing"),
                unknown.report.text());
}

TEST_CASE("a setting of 0 may be written as the number that it stands for") {
  const Folder folder("gpt2_tiny", Json::object());
  const int64_t hidden = tiny("gpt2_tiny").at("n_embd").get<int64_t>();
  const Recipe same = recipe_of(folder.path, cat("type: gpt2, ffn_hidden_size: ", 4 * hidden));
  CHECK_MESSAGE(same.report.ok(), same.report.text());
  expect(recipe_of(folder.path, cat("type: gpt2, ffn_hidden_size: ", 4 * hidden + 8)),
         {"model.ffn_hidden_size", cat(4 * hidden).c_str()});
}
