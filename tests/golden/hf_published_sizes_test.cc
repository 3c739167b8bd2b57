// Published models of families that no recipe has: their config.json gives a model with as many
// parameters as its authors published.
#include "hf_config_folder.h"
#include "system/recipes/built_model.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

struct Published {
  const char* name;
  Json config;         // what differs from the defaults of the config class
  int64_t parameters;  // of transformers' class, buffers included
  int64_t published, rounded;
};

const std::vector<Published> kPublished = {
    {"EleutherAI/gpt-j-6b", {{"model_type", "gptj"}}, 6050882784, 6050000000, 10000000},
    {"Salesforce/codegen-350M-mono",
     {{"model_type", "codegen"},
      {"vocab_size", 51200},
      {"n_embd", 1024},
      {"n_layer", 20},
      {"n_head", 16},
      {"rotary_dim", 32}},
     356712448,
     357000000,
     1000000},
    {"tiiuae/falcon-7b", {{"model_type", "falcon"}}, 6921720704, 6921720704, 1},
    {"tiiuae/falcon-40b",
     {{"model_type", "falcon"},
      {"hidden_size", 8192},
      {"num_hidden_layers", 60},
      {"num_attention_heads", 128},
      {"num_kv_heads", 8},
      {"new_decoder_architecture", true}},
     41303293952,
     41300000000,
     100000000},
    {"tiiuae/falcon-11B",
     {{"model_type", "falcon"},
      {"hidden_size", 4096},
      {"num_hidden_layers", 60},
      {"num_attention_heads", 32},
      {"num_kv_heads", 8},
      {"new_decoder_architecture", true},
      {"num_ln_in_parallel_attn", 1},
      {"tie_word_embeddings", false}},
     11102822400,
     11100000000,
     100000000},
    {"ibm-granite/granite-3.1-1b-a400m-base",
     {{"model_type", "granitemoe"},
      {"vocab_size", 49155},
      {"hidden_size", 1024},
      {"intermediate_size", 512},
      {"num_hidden_layers", 24},
      {"num_attention_heads", 16},
      {"num_key_value_heads", 8},
      {"num_local_experts", 32},
      {"num_experts_per_tok", 8},
      {"tie_word_embeddings", true}},
     1334628352,
     1300000000,
     100000000},
    {"databricks/dbrx-base",
     {{"model_type", "dbrx"},
      {"vocab_size", 100352},
      {"d_model", 6144},
      {"n_heads", 48},
      {"n_layers", 40},
      {"attn_config", {{"clip_qkv", 8}, {"kv_n_heads", 8}, {"rope_theta", 500000}}},
      {"ffn_config",
       {{"ffn_hidden_size", 10752},
        {"moe_jitter_eps", 0.01},
        {"moe_loss_weight", 0.05},
        {"moe_num_experts", 16},
        {"moe_top_k", 4}}}},
     131596523520,
     132000000000,
     1000000000},
    {"baidu/ERNIE-4.5-21B-A3B-PT",
     {{"model_type", "ernie4_5_moe"}},
     21825437888,
     21800000000,
     100000000},
    {"upstage/Solar-Open-100B",
     {{"model_type", "solar_open"}},
     102651799552,
     102700000000,
     100000000},
    {"allenai/FlexOlmo-7x7B-1T",
     {{"model_type", "flex_olmo"}},
     33270665216,
     33000000000,
     1000000000},
    {"naver-hyperclovax/HyperCLOVAX-SEED-Think-14B",
     {{"model_type", "hyperclovax"},
      {"vocab_size", 110592},
      {"hidden_size", 6144},
      {"intermediate_size", 14336},
      {"num_hidden_layers", 38},
      {"num_attention_heads", 48},
      {"num_key_value_heads", 8},
      {"head_dim", 128}},
     14748112896,
     14700000000,
     100000000},
    {"facebook/cwm", {{"model_type", "cwm"}}, 32581097472, 33000000000, 1000000000},
    {"arcee-ai/Trinity-Mini",
     {{"model_type", "afmoe"},
      {"moe_intermediate_size", 1024},
      {"num_dense_layers", 2},
      {"num_attention_heads", 32},
      {"num_key_value_heads", 4},
      {"num_experts", 128},
      {"num_experts_per_tok", 8},
      {"num_shared_experts", 1}},
     26123974400,
     26000000000,
     1000000000},
    {"zai-org/GLM-4.7-Flash",
     {{"model_type", "glm4_moe_lite"}},
     29943393920,
     30000000000,
     1000000000},
    {"LGAI-EXAONE/K-EXAONE-236B-A23B",
     {{"model_type", "exaone_moe"},
      {"vocab_size", 153600},
      {"hidden_size", 6144},
      {"intermediate_size", 18432},
      {"moe_intermediate_size", 2048},
      {"num_hidden_layers", 48},
      {"num_attention_heads", 64},
      {"num_key_value_heads", 8},
      {"head_dim", 128},
      {"num_experts", 128}},
     236571156352,
     237000000000,
     1000000000},
    {"tencent/Hy3-preview", {{"model_type", "hy_v3"}}, 295033543488, 295000000000, 1000000000},
    {"JetBrains/Mellum2-12B-A2.5B-Base",
     {{"model_type", "mellum"}},
     12149923072,
     12000000000,
     1000000000},
};

std::string text_of(const Node& value) {
  std::vector<std::string> items;
  for (const Node& item : value.items()) items.push_back(brief(item));
  return value.is_list() ? cat("[", join(items, ", "), "]") : brief(value);
}

/// The recipe of a model from scratch with the folder's settings.
Recipe recipe_of_config(const Json& config) {
  const HfFamily& family = *families().find(config.at("model_type").get<std::string>(), "");
  const HfFolderConfig read_config = read(config, family.plugin.c_str(), 16);
  for (const auto& refusal : read_config.refused) FAIL_CHECK(refusal.what);
  RecipeRequest request{.recipe = "test",
                        .text = cat("model: {type: ", family.plugin,
                                    ", seq_length: 16}\ntokenizer: {type: byte}\ndataset: {type: "
                                    "mock}\noptimizer: {type: adamw}\ntrain: {steps: 1}\n"),
                        .directory = fs::temp_directory_path(),
                        .overrides = {},
                        .cluster = {}};
  for (const HfSetting& setting : read_config.settings)
    request.overrides.push_back({cat(setting.path, "=", text_of(setting.value)), 2});
  return read_recipe(request, shared_plugins());
}

}  // namespace

TEST_CASE("published models have as many parameters as published") {
  for (const Published& model : kPublished) {
    CAPTURE(std::string(model.name));
    CHECK((model.parameters + model.rounded / 2) / model.rounded * model.rounded ==
          model.published);
    const Recipe recipe = recipe_of_config(model.config);
    CHECK_MESSAGE(recipe.report.errors() == 0, recipe.report.text());
    CHECK(BuiltModel(recipe, shared_plugins()).parameters() == model.parameters);
  }
}
