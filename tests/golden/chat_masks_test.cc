// The loss masks of conversations by the chat templates that models are shipped with: every answer
// up to and including the token that ends its turn, and no header. The templates lie below
// $MTRAIN_SHARED.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../unit/finetune/byte_tokenizer.h"
#include "built_plugins.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/config/tree.h"
#include "mtrain/finetune/chat_tokens.h"
#include "mtrain/finetune/example_encoder.h"
#include "mtrain/finetune/record_format.h"
#include "mtrain/plugin/plugin_host.h"
#include "roots.h"

using namespace mtrain;
namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

namespace {

fs::path shared() { return testing::shared_root() / "data"; }

/// Runs of trained tokens, each as text.
template <class Trained>
std::vector<std::string> trained_runs(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                      const Trained& trained) {
  std::vector<std::string> out;
  const auto special = tokenizer.special_tokens();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!trained[i]) continue;
    if (i == 0 || !trained[i - 1]) out.emplace_back();
    auto found = std::find_if(special.begin(), special.end(),
                              [&](const SpecialToken& t) { return t.id == ids[i]; });
    out.back() +=
        found != special.end() ? found->text : tokenizer.decode_bytes(std::span(ids).subspan(i, 1));
  }
  return out;
}

const std::vector<std::string> kLlama3 = {"<|begin_of_text|>", "<|start_header_id|>",
                                          "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"};
const std::vector<std::string> kChatMl = {"<|im_start|>", "<|im_end|>", "<tool_call>",
                                          "</tool_call>"};
const std::vector<std::string> kDeepSeek = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                                            "<｜User｜>", "<｜Assistant｜>"};
const std::vector<std::string> kCohere = {
    "<BOS_TOKEN>",           "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>",
    "<|CHATBOT_TOKEN|>",     "<|USER_TOKEN|>",          "<|SYSTEM_TOKEN|>",
    "<|START_RESPONSE|>",    "<|END_RESPONSE|>",        "<|START_THINKING|>",
    "<|END_THINKING|>",      "<|START_ACTION|>",        "<|END_ACTION|>",
    "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"};

struct Row {
  std::string file;  // of templates/, or of vectors/chat/
  std::vector<std::string>
      marks;                    // special tokens of the model's tokenizer; the first begins texts
  std::string eos, begin, end;  // what is trained on around each answer
  std::string call = {};  // what is trained on in a turn that calls add(a=2); empty: the template
                          // has no calls of this form
  bool tools = true;      // false: the template fails where there are some, with Jinja, too
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"CohereForAI-c4ai-command-r-plus-tool_use.jinja", kCohere, "<|END_OF_TURN_TOKEN|>", "",
       "<|END_OF_TURN_TOKEN|>"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", kCohere, "<|END_OF_TURN_TOKEN|>",
       "<|START_RESPONSE|>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", kChatMl, "<|im_end|>", "",
       "<|im_end|>"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", kChatMl, "<|im_end|>", "",
       "<|im_end|>"},
      {"Qwen-Qwen2.5-7B-Instruct.jinja", kChatMl, "<|im_end|>", "", "<|im_end|>",
       "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call><|im_end|>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", kDeepSeek, "<｜end▁of▁sentence｜>", "",
       "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", kDeepSeek, "<｜end▁of▁sentence｜>", "",
       "<｜end▁of▁sentence｜>"},
      {"fireworks-ai-llama-3-firefunction-v2.jinja", kLlama3, "<|eot_id|>", "", "<|eot_id|>"},
      {"google-gemma-2-2b-it.jinja",
       {"<bos>", "<start_of_turn>", "<end_of_turn>"},
       "<eos>",
       "",
       "<end_of_turn>"},
      {"llama-cpp-deepseek-r1.jinja", kDeepSeek, "<｜end▁of▁sentence｜>", "",
       "<｜end▁of▁sentence｜>", "", false},
      {"meetkai-functionary-medium-v3.1.jinja", kLlama3, "<|eot_id|>", "", "<|eot_id|>"},
      {"meetkai-functionary-medium-v3.2.jinja", kLlama3, "<|eot_id|>", "all\n", "<|eot_id|>"},
      {"meta-llama-Llama-3.1-8B-Instruct.jinja", kLlama3, "<|eot_id|>", "", "<|eot_id|>",
       "{\"name\": \"add\", \"parameters\": {\"a\": 2}}<|eot_id|>"},
      {"meta-llama-Llama-3.2-3B-Instruct.jinja", kLlama3, "<|eot_id|>", "", "<|eot_id|>",
       "{\"name\": \"add\", \"parameters\": {\"a\": 2}}<|eot_id|>"},
      {"meta-llama-Llama-3.3-70B-Instruct.jinja", kLlama3, "<|eot_id|>", "", "<|eot_id|>",
       "{\"name\": \"add\", \"parameters\": {\"a\": 2}}<|eot_id|>"},
      {"microsoft-Phi-3.5-mini-instruct.jinja",
       {"<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"},
       "<|endoftext|>",
       "",
       "<|end|>"},
      {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
       {"<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"},
       "</s>",
       "",
       "</s>"},
      {"cfg_llama3.json", kLlama3, "<|end_of_text|>", "", "<|eot_id|>"},
      {"cfg_llama3_1.json", kLlama3, "<|eot_id|>", "", "<|eot_id|>"},
      {"cfg_qwen2_5.json", kChatMl, "<|im_end|>", "", "<|im_end|>"},
      {"cfg_deepseek_v3.json", kDeepSeek, "<｜end▁of▁sentence｜>", "", "<｜end▁of▁sentence｜>"},
  };
  return kRows;
}

std::string source_of(const std::string& file) {
  const bool vector = file.ends_with(".json");
  std::ifstream in(shared() / (vector ? "vectors/chat" : "templates") / file);
  REQUIRE_MESSAGE(in.is_open(), file);
  if (vector) return OrderedJson::parse(in).at("template");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

chat::ChatInput input_of(const Row& row, const char* messages) {
  chat::ChatInput input;
  input.messages = chat::messages_from_json(messages);
  input.special = {{"bos_token", row.marks[0]}, {"eos_token", row.eos}};
  input.special_tokens = row.marks;
  input.more = {{"functions", chat::from_json("\"[]\"")},
                {"datetime", chat::from_json("\"today\"")}};
  if (row.tools)
    input.tools =
        chat::from_json(R"([{"type": "function", "function": {"name": "add", "description": "sums",
                                    "parameters": {"type": "object", "properties": {}, "required": []}}}])");
  return input;
}

std::vector<std::string> trained_texts(const Row& row, const char* messages) {
  const chat::ChatInput input = input_of(row, messages);
  const auto rendered = chat::ChatTemplate(source_of(row.file), row.file).render_masked(input);
  const testing::ByteTokenizer tokenizer(row.marks);
  const auto tokens = finetune::encode_chat(rendered.text, tokenizer);
  std::vector<bool> trained;
  for (const chat::Stretch& token : tokens.bytes)
    trained.push_back(finetune::is_within(token, rendered.assistant));
  return trained_runs(tokenizer, tokens.ids, trained);
}

constexpr const char* kOneTurn =
    R"([{"role": "user", "content": "Hi there."}, {"role": "assistant", "content": "Hello <|x|>"}])";
constexpr const char* kTwoTurns =
    R"([{"role": "user", "content": "Hi there."}, {"role": "assistant", "content": "Hello <|x|>"},
    {"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Fine, thanks."}])";
constexpr const char* kAsked =
    R"([{"role": "user", "content": "Hi there."}, {"role": "assistant", "content": "Hello <|x|>"},
    {"role": "user", "content": "How are you?"}])";
constexpr const char* kCall =
    R"([{"role": "user", "content": "2?"}, {"role": "assistant", "content": "", "tool_calls":
    [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]}])";

}  // namespace

TEST_CASE(
    "with every shipped template answers are trained on with the token that ends their turn, and "
    "no "
    "header") {
  if (!fs::exists(shared() / "templates")) {
    MESSAGE("not checked: there are no templates in " << shared().string());
    return;
  }
  for (const auto& row : rows()) {
    CAPTURE(row.file);
    const std::string hello = row.begin + "Hello <|x|>" + row.end,
                      fine = row.begin + "Fine, thanks." + row.end;
    CHECK(trained_texts(row, kOneTurn) == std::vector{hello});
    CHECK(trained_texts(row, kTwoTurns) == std::vector{hello, fine});
    CHECK(trained_texts(row, kAsked) == std::vector{hello});
    if (!row.call.empty()) CHECK(trained_texts(row, kCall) == std::vector{row.call});
  }
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(shared() / "templates"))
    files += entry.path().extension() == ".jinja" ? 1 : 0;
  CHECK(files ==
        static_cast<size_t>(std::count_if(rows().begin(), rows().end(), [](const Row& row) {
          return row.file.ends_with(".jinja");
        })));
}

TEST_CASE(
    "records are masked alike with the tokenizers of the models, and a template of another model "
    "is noticed") {
  if (!fs::exists(shared() / "tokenizers/llama3")) {
    MESSAGE("not checked: there are no tokenizers in " << shared().string());
    return;
  }
  PluginHost plugins = testing::built_plugins();
  auto tokenizer_of = [&](const char* folder) {
    Node settings = Node::map();
    settings.set("path", Node::string((shared() / "tokenizers" / folder).string()));
    TokenizerContext context{fs::current_path()};
    return plugins.make<Tokenizer>("hf", settings, context);
  };
  auto runs = [&](const char* folder, const std::string& path, const char* messages) {
    auto tokenizer = tokenizer_of(folder);
    const finetune::ExampleEncoder encoder(*tokenizer, {.template_path = path});
    CHECK(encoder.missing_special_tokens().empty());
    const OrderedJson record = {{"messages", OrderedJson::parse(messages)}};
    const auto example = encoder.encode(
        finetune::RecordReader(finetune::RecordFormat::openai, {}).read(record, "here:1"));
    return trained_runs(*tokenizer, example.ids, example.trained);
  };
  const std::string templates = (shared() / "templates").string() + "/";
  for (const char* name :
       {"", "meta-llama-Llama-3.1-8B-Instruct.jinja"}) {  // the original one asks for no prompt
    const std::string path = *name ? templates + name : "";
    CHECK(runs("llama3", path, kOneTurn) == std::vector<std::string>{"Hello <|x|><|eot_id|>"});
    CHECK(runs("llama3", path, kTwoTurns) ==
          std::vector<std::string>{"Hello <|x|><|eot_id|>", "Fine, thanks.<|eot_id|>"});
  }
  CHECK(runs("qwen2_5", "", kTwoTurns) ==
        std::vector<std::string>{"Hello <|x|><|im_end|>", "Fine, thanks.<|im_end|>"});
  CHECK(runs("qwen2_5", "", kCall) ==
        std::vector<std::string>{
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call><|im_end|>"});

  auto llama3 = tokenizer_of("llama3");
  const finetune::ExampleEncoder strange(
      *llama3, {.template_path = templates + "Qwen-Qwen2.5-7B-Instruct.jinja"});
  CHECK(strange.missing_special_tokens() == std::vector<std::string>{"<|im_end|>", "<|im_start|>"});
}
