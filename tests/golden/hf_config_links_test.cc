// Keys of config.json whose meaning depends on others: products, keys that count only with another
// one, and lists of which blocks have experts.
#include "has.h"
#include "hf_config_folder.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_write_config.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

HfFolderConfig got(const Json& config) {
  const HfFamily& family = *families().find(config.at("model_type").get<std::string>(), "");
  return read(config, family.plugin.c_str());
}

std::map<std::string, std::string> linked_settings(const Json& config) {
  const HfFolderConfig folder = got(config);
  for (const auto& refusal : folder.refused) FAIL_CHECK(refusal.what);
  return values(folder);
}

void refuses_links(const Json& config, const char* part) {
  const HfFolderConfig folder = got(config);
  REQUIRE(folder.refused.size() == 1);
  CHECK_MESSAGE(has(folder.refused[0].what, part), folder.refused[0].what);
}

/// What export writes, after what the family cannot express.
std::pair<std::string, Json> exported(const char* type, const std::string& text) {
  const HfFamily& family = *families().find(type, "");
  const Node section = parse_yaml(cat("{layers: 3, hidden_size: 48, heads: 4, ", text, "}"));
  const HfModel model(section, *catalog().component("model", family.plugin));
  return {join(hf_unexpressed(family, model), "\n"),
          Json::parse(hf_config_text(families(), family, model, {}))};
}

const char* const kGptj =
    "norm: layer, parallel: one_norm, mlp_gated: false, activation: gelu, mlp_bias: true, "
    "head_bias: true, ";

}  // namespace

TEST_CASE("a key may be a setting times others: a part of a head in elements") {
  auto percent = [](const Json& config) {
    return std::stod(linked_settings(config).at("model.rope.percent"));
  };
  CHECK(percent({{"model_type", "gptj"}}) == 0.25);  // 64 of 4096 / 16
  CHECK(percent({{"model_type", "gptj"}, {"n_embd", 48}, {"n_head", 4}, {"rotary_dim", 6}}) == 0.5);
  CHECK(percent({{"model_type", "codegen"}, {"hidden_size", 1024}, {"rotary_dim", 32}}) == 0.5);
  for (const Json& wrong : {Json(0), Json("64"), Json(-2)})
    refuses_links({{"model_type", "gptj"}, {"rotary_dim", wrong}}, "positive number");

  const auto half = exported("gptj", cat(kGptj, "rope: {percent: 0.5, interleaved: true}"));
  CHECK(half.first == "");
  CHECK(half.second.at("rotary_dim") == 6);
  CHECK(half.second.at("rotary_dim").is_number_integer());
  // 1/3 of 12 elements is 4, although 1/3 is not exact.
  CHECK(exported("gptj", cat(kGptj, "rope: {percent: 0.3333333333333333, interleaved: true}"))
            .second.at("rotary_dim") == 4);
  CHECK(has(exported("gptj", cat(kGptj, "rope: {percent: 0.3, interleaved: true}")).first,
            "model.rope.percent=0.3: gptj has whole numbers as rotary_dim only"));
}

TEST_CASE("a key that is omitted may be a multiple of another one") {
  CHECK(linked_settings({{"model_type", "gptj"}}).at("model.ffn_hidden_size") == "16384");
  CHECK(
      linked_settings({{"model_type", "gptj"}, {"n_inner", nullptr}, {"n_embd", 64}, {"n_head", 1}})
          .at("model.ffn_hidden_size") == "256");
  CHECK(linked_settings({{"model_type", "gptj"}, {"n_inner", 100}}).at("model.ffn_hidden_size") ==
        "100");
  CHECK(linked_settings({{"model_type", "falcon"}}).at("model.ffn_hidden_size") == "18176");
}

TEST_CASE("Falcon: which key counts depends on the form of its blocks") {
  auto falcon = [](const Json& keys) {
    Json config = {{"model_type", "falcon"}, {"num_attention_heads", 8}, {"hidden_size", 64}};
    config.update(keys);
    const auto all = linked_settings(config);
    return cat(all.at("model.kv_heads"), " ", all.at("model.parallel"));
  };
  CHECK(falcon(Json::object()) == "1 one_norm");
  CHECK(falcon({{"num_kv_heads", 8}}) == "1 one_norm");
  CHECK(falcon({{"multi_query", false}}) == "0 one_norm");
  CHECK(falcon({{"new_decoder_architecture", true}}) == "8 two_norms");
  CHECK(falcon({{"new_decoder_architecture", true}, {"multi_query", true}, {"num_kv_heads", 2}}) ==
        "2 two_norms");
  CHECK(falcon({{"new_decoder_architecture", true},
                {"num_kv_heads", 2},
                {"num_ln_in_parallel_attn", 1}}) == "2 one_norm");
  CHECK(falcon({{"new_decoder_architecture", true},
                {"num_kv_heads", 2},
                {"num_ln_in_parallel_attn", nullptr}}) == "2 two_norms");
  refuses_links({{"model_type", "falcon"}, {"alibi", true}}, "biases by distance (ALiBi)");
  refuses_links({{"model_type", "falcon"}, {"parallel_attn", false}}, "of the same stream");
  refuses_links({{"model_type", "falcon"}, {"bias", true}}, "without biases");
  const std::string layer = "norm: layer, mlp_gated: false, activation: gelu, ";
  const auto one = exported("falcon", cat(layer, "parallel: one_norm, kv_heads: 1"));
  CHECK(one.first == "");
  CHECK(one.second.at("new_decoder_architecture") == true);
  CHECK(one.second.at("num_ln_in_parallel_attn") == 1);
  CHECK(one.second.at("num_kv_heads") == 1);
  CHECK_FALSE(one.second.contains("multi_query"));
  CHECK(exported("falcon", cat(layer, "parallel: two_norms")).second.at("num_kv_heads") == 4);
  CHECK(has(exported("falcon", layer).first, "model.parallel=none: falcon has one_norm or "));
}

TEST_CASE("ERNIE 4.5: experts up to the last block, by its number or by -1") {
  auto ernie = [](int64_t end) {
    return Json{
        {"model_type", "ernie4_5_moe"}, {"num_hidden_layers", 6}, {"moe_layer_end_index", end}};
  };
  CHECK(linked_settings(ernie(-1)).at("model.layers") == "6");
  CHECK(linked_settings(ernie(5)).at("model.layers") == "6");
  refuses_links(ernie(4), "experts in every block after the first dense ones");
  refuses_links(ernie(6), "experts in every block after the first dense ones");
}

TEST_CASE("a list says which blocks have experts: all after the first ones") {
  auto glm = [](const Json& list) {
    return Json{
        {"model_type", "glm4_moe_lite"}, {"num_hidden_layers", 3}, {"mlp_layer_types", list}};
  };
  auto dense = [&](const Json& list) {
    return linked_settings(glm(list)).at("model.moe.first_dense_layers");
  };
  CHECK(dense({"dense", "sparse", "sparse"}) == "1");
  CHECK(dense({"dense", "dense", "dense"}) == "3");
  CHECK(dense({"sparse", "sparse", "sparse"}) == "0");
  CHECK(dense(nullptr) == "1");
  refuses_links(glm({"dense", "sparse", "dense"}),
                "dense for the first of the 3 blocks, then sparse");
  refuses_links(glm({"dense", "sparse"}), "the 3 blocks");
  refuses_links(glm({"dense", "sparse", "linear"}), "then sparse");
  // A number counts where there is no list.
  Json exaone = {{"model_type", "exaone_moe"},
                 {"num_hidden_layers", 3},
                 {"layer_types", {"full_attention", "full_attention", "full_attention"}},
                 {"first_k_dense_replace", 2}};
  CHECK(linked_settings(exaone).at("model.moe.first_dense_layers") == "2");
  exaone["mlp_layer_types"] = {"dense", "sparse", "sparse"};
  CHECK(linked_settings(exaone).at("model.moe.first_dense_layers") == "1");
  Json flash = glm({"dense", "sparse", "sparse"});
  flash["first_k_dense_replace"] = 2;
  refuses_links(flash, "first_k_dense_replace");

  const Json written =
      exported("glm4_moe_lite", "mla: {kv_lora_rank: 8}, moe: {first_dense_layers: 2}").second;
  CHECK(written.at("mlp_layer_types") == Json{"dense", "dense", "sparse"});
}

TEST_CASE("the first of every n blocks may be the one without a window") {
  const auto cwm = linked_settings({{"model_type", "cwm"}, {"num_hidden_layers", 6}});
  CHECK(cwm.at("model.attention.window") == "8192");
  CHECK(cwm.at("model.attention.window_blocks") == "[0, 1, 1, 1, 0, 1]");
}

TEST_CASE("a family that is the last choice is exported where it is named, or no other fits") {
  const Node section = parse_yaml(
      cat("{layers: 3, hidden_size: 48, heads: 4, ", kGptj, "rope: {interleaved: true}}"));
  const HfModel model(section, *catalog().component("model", "llama"));
  auto chosen = [&](const char* wanted, const char* source) {
    return hf_family_for_export(families(), wanted, source, model).model_type;
  };
  CHECK(chosen("", "") == "gptj");
  CHECK(chosen("codegen", "") == "codegen");
  CHECK(chosen("", R"({"model_type": "codegen"})") == "codegen");
}
