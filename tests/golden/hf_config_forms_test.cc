// Keys of config.json whose numbers are not the setting's, objects within objects, and which blocks
// have a window and rotary positions.
#include "has.h"
#include "hf_config_folder.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

std::map<std::string, std::string> settings(const Json& config) {
  const HfFolderConfig got = read(config, "llama", 8192);
  for (const auto& refusal : got.refused) FAIL_CHECK(refusal.what);
  return values(got);
}

/// Of window, global_interval, window_blocks and rope_pattern, with - for one that is not given.
std::string blocks(const Json& config) {
  const auto got = settings(config);
  std::vector<std::string> out;
  for (const char* name : {"window", "global_interval", "window_blocks", "rope_pattern"}) {
    const auto found = got.find(cat("model.attention.", name));
    out.push_back(found == got.end() ? "-" : found->second);
  }
  return join(out, " ");
}

void refuses(const Json& config, std::initializer_list<const char*> parts) {
  const HfFolderConfig got = read(config, "llama", 8192);
  REQUIRE(got.refused.size() == 1);
  for (const char* part : parts) CHECK_MESSAGE(has(got.refused[0].what, part), got.refused[0].what);
}

const Json kFull = "full_attention", kSliding = "sliding_attention";

}  // namespace

TEST_CASE("a setting may be the inverse of a key, or its inverse root") {
  auto granite = [](const Json& value) {
    return Json{{"model_type", "granite"}, {"logits_scaling", value}};
  };
  CHECK(std::stod(settings(granite(8.0)).at("model.logit_scale")) == 0.125);
  auto scale = [](const Json& config) {
    return std::stod(settings(config).at("model.attention.softmax_scale"));
  };
  CHECK(scale({{"model_type", "gemma2"}, {"query_pre_attn_scalar", 64}}) == 0.125);
  CHECK(scale({{"model_type", "gemma2"}}) == 0.0625);
  for (const Json& wrong : {Json(0), Json(-8.0), Json("8"), Json(1e-320)})
    refuses(granite(wrong), {"logits_scaling is ", "positive number"});
  refuses({{"model_type", "granite"}, {"embedding_multiplier", 0}}, {"embedding_multiplier is 0"});
}

TEST_CASE("a pattern that leaves no block with the window is refused, not read as windows in all") {
  for (const char* type : {"gemma3_text", "cohere2"})
    refuses({{"model_type", type}, {"sliding_window", 8}, {"sliding_window_pattern", 1}},
            {"the other keys give it to no block"});
}

TEST_CASE("null is no cap, and a key that is omitted has the config class's") {
  const auto none = settings({{"model_type", "gemma2"},
                              {"final_logit_softcapping", nullptr},
                              {"attn_logit_softcapping", nullptr}});
  CHECK(std::stod(none.at("model.logit_cap")) == 0);
  CHECK(std::stod(none.at("model.attention.logit_cap")) == 0);
  const auto usual = settings({{"model_type", "gemma2"}});
  CHECK(std::stod(usual.at("model.logit_cap")) == 30);
  CHECK(std::stod(usual.at("model.attention.logit_cap")) == 50);
}

TEST_CASE("rotary settings by kind of attention are objects within an object") {
  const Json both = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 5000.0}, {"factor", 2.5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 300.0}}}};
  auto got = settings({{"model_type", "gemma3_text"}, {"rope_parameters", both}});
  CHECK(got.at("model.rope.scaling") == "linear");
  CHECK(std::stod(got.at("model.rope.factor")) == 2.5);
  CHECK(std::stod(got.at("model.rope.theta")) == 5000);
  CHECK(std::stod(got.at("model.rope.local_theta")) == 300);
  // The older form says the same.
  CHECK(settings({{"model_type", "gemma3_text"},
                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}}},
                  {"rope_theta", 5000.0},
                  {"rope_local_base_freq", 300.0}}) == got);
  got = settings({{"model_type", "olmo3"}, {"rope_theta", 7000.0}});
  CHECK(std::stod(got.at("model.rope.theta")) == 7000);
  CHECK(std::stod(got.at("model.rope.local_theta")) == 500000);  // as transformers 5 reads it

  Json config = {{"model_type", "gemma3_text"}, {"rope_parameters", both}};
  config["rope_parameters"]["chunked_attention"] = {{"rope_type", "default"}};
  refuses(config, {"rope_parameters.chunked_attention is "});
  config["rope_parameters"] = both;
  config["rope_parameters"]["sliding_attention"]["factor"] = 2.0;
  refuses(config, {"rope_parameters.sliding_attention.factor is 2.0"});
  CHECK(read(config, "llama", 8192, {"rope_parameters.sliding_attention.factor"}).refused.empty());
  config["rope_parameters"] = both;
  config["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
  refuses(config, {"rope_parameters.sliding_attention.rope_type is \"linear\"", "without scaling"});
  config["rope_parameters"] = both;
  config["rope_parameters"]["full_attention"].erase("factor");
  refuses(config, {"rope_parameters.full_attention.rope_type is linear, which needs "
                   "rope_parameters.full_attention.factor"});
}

TEST_CASE("which blocks have a window: a number, or a list, in the shortest form") {
  Json config = {{"model_type", "gemma3_text"}, {"num_hidden_layers", 3}};
  CHECK(blocks(config) == "4096 6 - -");
  config["sliding_window_pattern"] = 2;
  CHECK(blocks(config) == "4096 2 - -");
  config["layer_types"] = {kSliding, kSliding, kFull};  // goes before the number
  CHECK(blocks(config) == "4096 3 - -");
  config["layer_types"] = {kSliding, kSliding, kSliding};
  CHECK(blocks(config) == "4096 0 - -");
  config["sliding_window_pattern"] = 6;  // says the same of three blocks
  CHECK(blocks(config) == "4096 6 - -");
  config["layer_types"] = {kFull, kSliding, kSliding};
  CHECK(blocks(config) == "4096 - [0, 1, 1] -");
  config["layer_types"] = {kFull, kFull, kFull};
  CHECK(blocks(config) == "- - - -");
  CHECK(blocks({{"model_type", "gemma2"}}) == "4096 2 - -");

  config["layer_types"] = {kFull, kSliding};
  refuses(config, {"layer_types is ", "the model has 3 blocks"});
  config["layer_types"] = {kFull, kSliding, kFull};
  config["sliding_window"] = nullptr;
  refuses(config, {"layer_types is ", "no key says how wide a window is"});
  config.erase("layer_types");
  config.erase("sliding_window");
  config["sliding_window_pattern"] = "LLG";
  refuses(config, {"layer_types is not in config.json", "LLG"});
}

TEST_CASE("rotary positions of the blocks with a window, or of all") {
  Json config = {{"model_type", "cohere2"}, {"num_hidden_layers", 4}};
  CHECK(blocks(config) == "4096 4 - [1, 1, 1, 0]");
  config["layer_types"] = {kFull, kFull, kSliding, kFull};
  CHECK(blocks(config) == "4096 - [0, 0, 1, 0] [0, 0, 1, 0]");
  config["layer_types"] = {kFull, kFull, kFull, kFull};
  CHECK(blocks(config) == "- - - [0, 0, 0, 0]");
  config["model_type"] = "exaone4";
  CHECK(blocks(config) == "- - - [0, 0, 0, 0]");
  config["sliding_window"] = nullptr;
  CHECK(blocks(config) == "- - - [1, 1, 1, 1]");
}
