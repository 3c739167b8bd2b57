// Export accepts settings without an effect, and those that say in another way what a key says.
#include "mtrain/recipe/hf_effect.h"

#include "has.h"
#include "hf_config_folder.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_write_config.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr const char* kSizes = "layers: 4, hidden_size: 48, heads: 4, seq_length: 16";

/// What a family cannot express, and its config.json.
struct Export {
  Export(const char* type, const std::string& settings) {
    const HfFamily& family = *families().find(type, "");
    const Node section = parse_yaml(cat("{", kSizes, ", ", settings, "}"));
    const HfModel model(section, *catalog().component("model", family.plugin));
    unexpressed = join(hf_unexpressed(family, model), "\n");
    config = Json::parse(hf_config_text(families(), family, model, {}));
  }
  std::string unexpressed;
  Json config;
};

}  // namespace

TEST_CASE("a setting that has no effect with the others needs no key") {
  const std::string router = "score: sigmoid, bias: true";
  auto glm = [&](const std::string& more) {
    return Export("glm4_moe", cat("moe: {experts: 4, top_k: 2, router: {", router, more, "}}"));
  };
  CHECK(glm("").unexpressed == "");
  CHECK(glm(", balancing: [none], aux_loss_coeff: [0]").unexpressed == "");
  CHECK(glm(", group_best: 2").unexpressed == "");
  CHECK(glm(", groups: 2, group_top_k: 1, group_best: 2").unexpressed == "");
  CHECK(glm(", groups: 2, group_top_k: 1").unexpressed == "");  // 0 stands for 2 of 2 scores
  CHECK(has(glm(", groups: 2, group_top_k: 2").unexpressed, "group_best=0: glm4_moe has 2"));
}

TEST_CASE("router.normalize=auto is exported as what it stands for") {
  auto settings = [](int top_k) {
    return cat("attention: {qk_norm: true, qk_norm_scope: all_heads}, moe: {experts: 4, top_k: ",
               top_k, ", router: {score: sigmoid, bias: true}}");
  };
  CHECK(Export("minimax_m2", settings(2)).unexpressed == "");
  CHECK(
      has(Export("minimax_m2", settings(1)).unexpressed, "normalize=auto: minimax_m2 has always"));
  auto glm = [](int top_k) {
    return Export("glm4_moe", cat("moe: {experts: 4, top_k: ", top_k,
                                  ", router: {score: sigmoid, bias: true}}"))
        .config.at("norm_topk_prob");
  };
  CHECK(glm(2) == true);
  CHECK(glm(1) == false);
}

TEST_CASE("router.normalize is exported without a key where the default means the same") {
  auto mixtral = [](const char* router) {
    return Export("mixtral", cat("moe: {experts: 4, top_k: 2, router: {", router, "}}"))
        .unexpressed;
  };
  CHECK(mixtral("normalize: always") == "");
  CHECK(has(mixtral("pre_softmax: true, normalize: always"), "normalize=always: mixtral has no"));
  auto qwen = [](const char* router) {
    return Export("qwen3_moe", cat("attention: {qk_norm: true}, moe: {experts: 4, top_k: 2, ",
                                   "router: {", router, "}}"))
        .unexpressed;
  };
  CHECK(qwen("normalize: always") == "");
  CHECK(qwen("pre_softmax: true, normalize: never") == "");
  CHECK(has(qwen("pre_softmax: true, normalize: always"), "normalize=always"));
}

TEST_CASE("an interval of blocks is written as the list of a family that has one") {
  const Export positions("smollm3", "attention: {no_rope_interval: 4}");
  CHECK(positions.unexpressed == "");
  CHECK(positions.config.at("no_rope_layers") == Json{1, 1, 1, 0});
  CHECK(Export("smollm3", "ffn_hidden_size: 96").config.at("no_rope_layers") == Json{1, 1, 1, 1});
  CHECK(Export("smollm3", "attention: {rope_pattern: [0, 1]}").config.at("no_rope_layers") ==
        Json{0, 1, 0, 1});
  for (const char* type : {"smollm3", "ministral"}) {
    CAPTURE(type);
    const Export windows(type, "attention: {window: 8, global_interval: 2}");
    CHECK(windows.unexpressed == "");
    CHECK(windows.config.at("sliding_window") == 8);
    CHECK(windows.config.at("layer_types") ==
          Json{"sliding_attention", "full_attention", "sliding_attention", "full_attention"});
  }
  // Without windows, their interval has no effect.
  CHECK(Export("llama", "attention: {global_interval: 2}").unexpressed == "");
  CHECK(has(Export("llama", "attention: {no_rope_interval: 2}").unexpressed, "no_rope_interval"));
}

TEST_CASE("a whole number that double does not have is refused, not rounded") {
  CHECK(Export("gemma2", "attention: {window: 8, global_interval: 2, softmax_scale: 0.25}")
            .config.at("query_pre_attn_scalar") == 16);
  CHECK(has(Export("gemma2", "attention: {softmax_scale: 1e-9}").unexpressed,
            "gemma2 has whole numbers up to 2^53 as query_pre_attn_scalar only"));
  CHECK(has(Export("granite", "attention: {softmax_scale: 0.3}, logit_scale: 1e-310").unexpressed,
            "logit_scale"));
}
