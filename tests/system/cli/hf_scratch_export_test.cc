// Runs that start from scratch, with defaults where a family allows them, can be exported as each
// family that is built, and the folder is read as the same model.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/recipe/hf_families.h"
#include "roots.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

bool succeeds(const Scratch& scratch, const std::string& words) {
  const Outcome outcome = cli_in(scratch.path(), words);
  const std::string details = words + "\n" + outcome.err;
  CHECK_MESSAGE(outcome.status == 0, details);
  return outcome.status == 0;
}

std::map<std::string, std::string> bytes_of_tensors(const fs::path& folder) {
  std::map<std::string, std::string> out;
  const mtrain::HfDir source(folder);
  for (const mtrain::TensorInfo* t : source.tensors())
    out[t->name] = {reinterpret_cast<const char*>(t->data.data()), t->data.size()};
  return out;
}

/// The width of windows in a model whose blocks have none is without effect; gpt_oss has a default.
nlohmann::json config_without_window(const fs::path& folder) {
  nlohmann::json out = nlohmann::json::parse(slurp(folder / "config.json"));
  const bool window = out.contains("layer_types") &&
                      out.at("layer_types").dump().find("sliding") != std::string::npos;
  if (!window) out.erase("sliding_window");
  return out;
}

const std::string kTraining =
    "tokenizer: byte\ndataset: mock\nrun: {threads: 1}\nlogger: {tensorboard: false}\n"
    "train: {steps: 1, global_batch_size: 2}\nscheduler: {warmup_steps: 0}\n"
    "validation: {steps: 0, interval: 0}\n";

/// A small model of the family with defaults elsewhere, as overrides.
std::string overrides(const mtrain::HfFamily& family) {
  std::string out =
      " model.layers=3 model.hidden_size=48 model.heads=4 model.seq_length=16 model.init_std=0.2";
  if (family.plugin != "gpt2") out += " model.ffn_hidden_size=96";
  if (family.plugin == "moe") out += " model.moe.experts=4 model.moe.top_k=2";
  for (const auto& [path, value] : family.settings)
    out += mtrain::cat(" model.", path, "=", value.as_text());
  static const std::map<std::string, std::string> extra = {
      {"afmoe",
       " model.attention.window=8 model.attention.window_blocks=[0,1,1] "
       "model.attention.rope_pattern=[0,1,1]"},
      {"codegen", " model.activation=gelu"},
      {"cohere2",
       " model.attention.window=8 model.attention.window_blocks=[0,1,1] "
       "model.attention.rope_pattern=[0,1,1]"},
      {"dbrx", " model.attention.clip_qkv=8"},
      {"deepseek_v2",
       " model.mla.kv_lora_rank=10 model.mla.qk_head_dim=6 model.mla.rope_head_dim=4 "
       "model.mla.v_head_dim=8"},
      {"deepseek_v3",
       " model.mla.kv_lora_rank=10 model.mla.qk_head_dim=6 model.mla.rope_head_dim=4 "
       "model.mla.v_head_dim=8"},
      {"exaone_moe",
       " model.attention.window=8 model.attention.window_blocks=[0,1,1] "
       "model.attention.rope_pattern=[0,1,1]"},
      {"falcon", " model.activation=gelu model.parallel=two_norms"},
      {"glm4_moe_lite",
       " model.mla.kv_lora_rank=10 model.mla.qk_head_dim=6 model.mla.rope_head_dim=4 "
       "model.mla.v_head_dim=8"},
      {"qwen2_moe", " model.moe.shared_ffn_hidden_size=32"},
      {"gpt_neox", " model.activation=gelu"},
      {"gpt_oss", " model.moe.activation_clamp=7"},
      {"gemma2", " model.attention.window=8 model.attention.global_interval=2"},
      {"gemma3_text",
       " model.rope.local_theta=500 model.attention.window=8 model.attention.global_interval=2"},
      {"granite", " model.attention.softmax_scale=0.3 model.logit_scale=0.7"},
      {"granitemoe", " model.attention.softmax_scale=0.3 model.logit_scale=0.7"},
      {"granitemoeshared",
       " model.attention.softmax_scale=0.3 model.moe.shared_ffn_hidden_size=32"},
      {"gptj", " model.activation=gelu"},
      {"mellum", " model.rope.local_theta=500"},
      {"olmo3", " model.rope.local_theta=500"},
      {"nemotron", " model.activation=squared_relu"},
      {"persimmon", " model.activation=squared_relu"},
      {"phi", " model.activation=gelu"},
      {"starcoder2", " model.activation=gelu"}};
  const auto more = extra.find(family.model_type);
  return more == extra.end() ? out : out + more->second;
}

void check_round_trip(const mtrain::HfFamily& family) {
  CAPTURE(family.model_type);
  const Scratch scratch("mtrain-scratch-export");
  scratch.write("r.yaml", "model: {type: " + family.plugin + "}\n" + kTraining);
  const std::string family_option = " -q --family " + family.model_type;
  if (!succeeds(scratch, "r.yaml -q run.dir=run" + overrides(family)) ||
      !succeeds(scratch, "export run out" + family_option))
    return;
  const nlohmann::json config = config_without_window(scratch / "out");
  CHECK(config.at("model_type") == family.model_type);
  // Programs that check types want 0.0 for a number.
  if (config.contains("attention_dropout")) CHECK(config.at("attention_dropout").is_number_float());
  if (config.contains("router_aux_loss_coef"))
    CHECK(config.at("router_aux_loss_coef").is_number_float());
  CHECK(config.at("eos_token_id") == 256);  // of the byte tokenizer
  CHECK(config.at("bos_token_id").is_null());
  for (const char* size : {"hidden_size", "n_embd"})
    if (config.contains(size)) CHECK(config.at(size) == 48);
  if (!succeeds(scratch, "import out again -q tokenizer=byte") ||
      !succeeds(scratch, "export again back" + family_option))
    return;
  CHECK(config_without_window(scratch / "back") == config);
  CHECK(bytes_of_tensors(scratch / "back") == bytes_of_tensors(scratch / "out"));
}

}  // namespace

TEST_CASE("a model from scratch is exported as each family, and read back as the same model") {
  const mtrain::HfFamilies families =
      mtrain::HfFamilies::read({build_root() / "lib/mtrain/plugins"});
  size_t checked = 0;
  for (const mtrain::HfFamily& family : families.all()) {
    const bool decoder =
        family.plugin == "llama" || family.plugin == "gpt2" || family.plugin == "moe";
    if (!decoder || !family.needs.empty()) continue;
    check_round_trip(family);
    ++checked;
  }
  CHECK(checked > 55);
}

TEST_CASE("what a family's keys cannot say is refused, with what they can say") {
  struct Case {
    std::string family, settings, refusal;
  };
  const std::string gemma =
      " model.norm_position=sandwich model.norm_zero_centered=true model.embedding_multiplier=0 "
      "model.activation=gelu_new";
  const std::vector<Case> cases = {
      {"cohere2", " model.attention.window=8 model.attention.global_interval=2",
       "model.attention.rope_pattern=[]: cohere2 has rotary positions in the blocks with a window"},
      {"exaone4", " model.attention.rope_pattern=[1,0,1]",
       "model.attention.rope_pattern=[1, 0, 1]: exaone4 has rotary positions in the blocks"},
      {"gemma2", gemma + " model.attention.softmax_scale=0.3",
       "model.attention.softmax_scale=0.3: gemma2 has whole numbers as query_pre_attn_scalar"},
      {"gemma3_text", gemma, "model.rope.local_theta=0.0: gemma3_text has a number other than 0"},
      {"granite", " model.embedding_multiplier=0",
       "model.embedding_multiplier=0.0: granite has a number other than 0 only"},
      {"granite", "", "model.attention.softmax_scale=null: granite has a number only"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.settings);
    const Scratch scratch("mtrain-scratch-refused");
    scratch.write("r.yaml", "model: {type: llama}\n" + kTraining);
    if (!succeeds(scratch,
                  "r.yaml -q run.dir=run model.layers=3 model.hidden_size=48 model.heads=4 "
                  "model.seq_length=16 model.ffn_hidden_size=96" +
                      c.settings))
      continue;
    const Outcome outcome = cli_in(scratch.path(), "export run out -q --family " + c.family);
    CHECK(outcome.status == 10);
    CHECK_MESSAGE(outcome.err.find(c.refusal) != std::string::npos, outcome.err);
  }
}

TEST_CASE("a number for which 0 would stand is exported as 0 is") {
  struct Case {
    std::string plugin, family, zero, number;
  };
  const std::vector<Case> cases = {
      {"moe", "mixtral", "model.moe.ffn_hidden_size=0 model.head_dim=0",
       "model.moe.ffn_hidden_size=96 model.head_dim=12"},
      {"llama", "gpt_neox", "model.kv_heads=0", "model.kv_heads=4"},
      {"gpt2", "gpt2", "model.kv_heads=0 model.max_positions=0",
       "model.kv_heads=4 model.max_positions=16"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.family);
    const Scratch scratch("mtrain-scratch-zero");
    scratch.write("r.yaml", "model: {type: " + c.plugin + "}\n" + kTraining);
    const mtrain::HfFamilies families =
        mtrain::HfFamilies::read({build_root() / "lib/mtrain/plugins"});
    const std::string model = overrides(*families.find(c.family, ""));
    const std::string family = " -q --family " + c.family;
    if (!succeeds(scratch, "r.yaml -q run.dir=zero" + model + " " + c.zero) ||
        !succeeds(scratch, "r.yaml -q run.dir=number" + model + " " + c.number) ||
        !succeeds(scratch, "export zero zero_out" + family) ||
        !succeeds(scratch, "export number number_out" + family))
      continue;
    nlohmann::json of_number = config_without_window(scratch / "number_out");
    if (c.plugin == "moe") of_number.erase("head_dim");  // a key that is left out for 0
    CHECK(of_number == config_without_window(scratch / "zero_out"));
    CHECK(bytes_of_tensors(scratch / "number_out") == bytes_of_tensors(scratch / "zero_out"));
  }
}

TEST_CASE("coefficients of two balancing losses are exported as their sum, and read back") {
  const Scratch scratch("mtrain-scratch-balancing");
  scratch.write("r.yaml", "model: {type: moe}\n" + kTraining);
  if (!succeeds(
          scratch,
          "r.yaml -q run.dir=run model.layers=2 model.hidden_size=48 model.heads=4 "
          "model.seq_length=16 model.ffn_hidden_size=96 model.moe.experts=4 model.moe.top_k=2 "
          "model.moe.router.balancing=[aux_loss,global_aux_loss] "
          "model.moe.router.aux_loss_coeff=[0.25,0.5]") ||
      !succeeds(scratch, "export run out -q --family mixtral"))
    return;
  CHECK(config_without_window(scratch / "out").at("router_aux_loss_coef") == 0.75);
  succeeds(scratch, "import out again -q tokenizer=byte");
}

TEST_CASE("a recipe may write a pattern of blocks once that a folder writes for all blocks") {
  const Scratch scratch("mtrain-scratch-pattern");
  scratch.write("r.yaml", "model: {type: llama}\n" + kTraining);
  const std::string model =
      " model.layers=4 model.hidden_size=48 model.heads=4 model.seq_length=16 "
      "model.ffn_hidden_size=96 model.attention.rope_pattern=";
  if (!succeeds(scratch, "r.yaml -q run.dir=run" + model + "[1,0]") ||
      !succeeds(scratch, "export run out -q --family smollm3"))
    return;
  CHECK(config_without_window(scratch / "out").at("no_rope_layers") ==
        nlohmann::json({1, 0, 1, 0}));
  const std::string from = "check r.yaml model.init_from=out";
  succeeds(scratch, from + model + "[1,0]");
  CHECK(cli_in(scratch.path(), from + model + "[0,1]").status == 10);
}
