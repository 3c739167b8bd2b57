// Templates that come with mtrain, against those of the models they are named after and what is
// trained on with them.
#include "mtrain/chat/ready_made.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::chat;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

ChatTemplate made(const std::string& name) { return {ready_made(name).source, name}; }

RenderedChat render_ready_made(const std::string& name, const char* messages, bool prompt = false) {
  ChatInput input;
  input.messages = messages_from_json(messages);
  input.special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.add_generation_prompt = prompt;
  return made(name).render_masked(input);
}

constexpr const char* kTalk =
    R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye?"}, {"role": "assistant", "content": "Bye"}])";
constexpr const char* kPlain =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye?"}, {"role": "assistant", "content": "Bye"}])";

}  // namespace

TEST_CASE("ready-made templates write what the models' own do") {
  const fs::path vectors = testing::shared_root() / "data/vectors/chat";
  if (!fs::exists(vectors)) {
    MESSAGE("skipped: no sample data at " << vectors.string());
    return;
  }
  int cases = 0;
  for (const auto& [name, file] : {std::pair{"qwen", "cfg_qwen2_5"},
                                   {"llama3", "cfg_llama3_1"},
                                   {"deepseek", "cfg_deepseek_v3"},
                                   {"gemma", "google-gemma-2-2b-it"},
                                   {"phi", "microsoft-Phi-3.5-mini-instruct"},
                                   {"mistral", "mistralai-Mistral-Nemo-Instruct-2407"}}) {
    CAPTURE(name);
    const Json golden = Json::parse(std::ifstream(vectors / cat(file, ".json")));
    const ChatTemplate own = made(name);
    for (const auto& test : golden.at("cases")) {
      const std::string which = test.at("case");
      // Calls are for the models' own templates; which orders of roles are refused differs.
      if (test.at("tools").get<bool>() || which == "tools" || which == "bad_order" ||
          test.contains("error"))
        continue;
      CAPTURE(which);
      ChatInput input;
      input.messages = messages_from_json(golden.at("messages").at(which).dump());
      input.add_generation_prompt = test.at("add_generation_prompt");
      input.special = {{"bos_token", golden.at("bos_token").get<std::string>()},
                       {"eos_token", golden.at("eos_token").get<std::string>()}};
      std::string expected = test.at("rendered");
      // Mistral's own template drops the system message where the conversation ends with an answer;
      // the ready-made one keeps it: no message of a training example may be lost.
      if (std::string_view(name) == "mistral" && which == "system")
        expected.insert(expected.rfind("[INST]") + 6, "You are terse.\n\n");
      CHECK(own.render(input).text.bytes == expected);
      ++cases;
    }
  }
  CHECK(cases >= 30);
}

TEST_CASE("ready-made templates of the other families write their turns") {
  CHECK(render_ready_made("chatml", kTalk, true).text.bytes ==
        "<|im_start|>system\nBe "
        "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nBye?<|im_end|>\n<|im_start|>assistant\nBye<|im_end|>\n<|im_start|>"
        "assistant\n");
  CHECK(render_ready_made("llama2", kTalk).text.bytes ==
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye? [/INST] Bye "
        "</s>");
  CHECK(render_ready_made("mistral", kTalk).text.bytes ==
        "<s>[INST]Hi[/INST]Hello</s>[INST]Be brief.\n\nBye?[/INST]Bye</s>");
  CHECK(render_ready_made("zephyr", kTalk, true).text.bytes ==
        "<|system|>\nBe "
        "brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye?</"
        "s>\n<|assistant|>\nBye</s>\n"
        "<|assistant|>\n");
  CHECK(render_ready_made("vicuna", kTalk).text.bytes ==
        "Be brief. USER: Hi ASSISTANT: Hello</s>USER: Bye? ASSISTANT: Bye</s>");
  CHECK(render_ready_made("alpaca", kTalk).text.bytes ==
        "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### "
        "Instruction:\nBye?\n\n### Response:\nBye</s>");
  CHECK(render_ready_made("alpaca", kPlain).text.bytes.starts_with("Below is an instruction"));
  CHECK(
      render_ready_made("vicuna", kPlain).text.bytes.starts_with("A chat between a curious user"));
}

TEST_CASE("several system messages are all written, in order, with an empty line between them") {
  const char* two =
      R"([{"role": "system", "content": "AAA"}, {"role": "system", "content": "BBB"},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])";
  CHECK(render_ready_made("alpaca", two).text.bytes ==
        "AAA\n\nBBB\n\n### Instruction:\nHi\n\n### Response:\nHello</s>");
  CHECK(render_ready_made("vicuna", two).text.bytes == "AAA\n\nBBB USER: Hi ASSISTANT: Hello</s>");
  CHECK(render_ready_made("llama2", two).text.bytes ==
        "<s>[INST] <<SYS>>\nAAA\n\nBBB\n<</SYS>>\n\nHi [/INST] Hello </s>");
  CHECK(render_ready_made("mistral", two).text.bytes ==
        "<s>[INST]AAA\n\nBBB\n\nHi[/INST]Hello</s>");
  const char* later =
      R"([{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"},
      {"role": "system", "content": "X"}, {"role": "system", "content": "Y"},
      {"role": "user", "content": "C"}, {"role": "assistant", "content": "D"}])";
  for (const char* name : {"alpaca", "vicuna", "llama2", "mistral"})
    CHECK_MESSAGE(render_ready_made(name, later).text.bytes.find("X\n\nY") != std::string::npos,
                  name);
  const char* empty = R"([{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}])";
  CHECK(render_ready_made("vicuna", empty).text.bytes == "USER: Hi ASSISTANT:");
  CHECK(render_ready_made("llama2", empty).text.bytes ==
        "<s>[INST] <<SYS>>\n\n<</SYS>>\n\nHi [/INST]");
}

TEST_CASE("templates that write an answer after each user turn refuse two user turns in a row") {
  const char* two = R"([{"role": "user", "content": "A"}, {"role": "user", "content": "B"},
      {"role": "assistant", "content": "C"}])";
  const char* around_system = R"([{"role": "user", "content": "A"},
      {"role": "system", "content": "X"}, {"role": "user", "content": "B"}])";
  for (const char* name : {"alpaca", "vicuna", "llama2", "mistral"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(render_ready_made(name, two), doctest::Contains("two user turns"), Error);
    CHECK_THROWS_WITH_AS(render_ready_made(name, around_system), doctest::Contains(name), Error);
  }
  CHECK_THROWS_AS(render_ready_made("gemma", two), Error);
  CHECK(render_ready_made("chatml", two).text.bytes.starts_with("<|im_start|>user\nA"));
}

TEST_CASE("with every ready-made template only the answers and their ends are trained on") {
  const std::map<std::string, std::pair<std::string, std::string>> around = {
      {"alpaca", {"", "</s>"}},
      {"chatml", {"", "<|im_end|>"}},
      {"deepseek", {"", "<｜end▁of▁sentence｜>"}},
      {"gemma", {"", "<end_of_turn>"}},
      {"llama2", {" ", " </s>"}},
      {"llama3", {"", "<|eot_id|>"}},
      {"mistral", {"", "</s>"}},
      {"phi", {"", "<|end|>"}},
      {"qwen", {"", "<|im_end|>"}},
      {"vicuna", {" ", "</s>"}},
      {"zephyr", {"", "</s>"}}};
  const std::vector<std::string> names = ready_made_names();
  REQUIRE(names.size() == around.size());
  for (const auto& name : names) {
    CAPTURE(name);
    const RenderedChat chat = render_ready_made(name, kPlain);
    std::vector<std::string> trained;
    for (auto [begin, end] : chat.assistant)
      trained.push_back(chat.text.bytes.substr(begin, end - begin));
    const auto& [before, behind] = around.at(name);
    CHECK(trained == std::vector<std::string>{before + "Hello" + behind, before + "Bye" + behind});
  }
}

TEST_CASE("a name that there is not, and a tokenizer without an end of text, are named") {
  CHECK_THROWS_WITH_AS(ready_made("llama4"), doctest::Contains("llama4"), Error);
  ChatInput input;
  input.messages = messages_from_json(kPlain);
  CHECK_THROWS_WITH_AS(made("vicuna").render(input), doctest::Contains("end of text"), Error);
  CHECK(made("chatml").render(input).text.bytes.starts_with("<|im_start|>user\nHi"));
}
