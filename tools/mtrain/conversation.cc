#include "conversation.h"

#include <algorithm>

#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/finetune/chat_tokens.h"
#include "mtrain/finetune/sft_data.h"

namespace mtrain {

std::tm local_time() {
  std::time_t now = std::time(nullptr);
  std::tm out{};
  ::localtime_r(&now, &out);
  return out;
}

std::optional<chat::TemplateFile> template_of_run(const Recipe& recipe) {
  if (recipe.settings.dataset.type != "sft") return std::nullopt;
  const auto records = read_config<finetune::SftSettings>(recipe.component("dataset")).records;
  if (!records.chat_template.empty()) return chat::ready_made(records.chat_template);
  if (records.template_path.empty()) return std::nullopt;
  return chat::read_template(recipe.resolve(records.template_path), records.template_name);
}

std::string chat_template_text(const Recipe& recipe) {
  try {
    const auto own = template_of_run(recipe);
    return own ? own->source : "";
  } catch (const Error& error) {
    log_warn("the folder gets no chat template: ", error.message());
    return "";
  }
}

namespace {

constexpr const char* kWords = "wordsofanassistant";  // to find what a template writes after it

}  // namespace

Conversation::Conversation(const Tokenizer& tokenizer, chat::TemplateFile file)
    : tokenizer_(tokenizer), file_(std::move(file)), template_(file_.source, file_.name) {
  finetune::add_special_names(tokenizer, file_.special);
  find_ends();
}

chat::RenderedChat Conversation::render(const nlohmann::ordered_json& messages, bool prompt) const {
  chat::ChatInput input;
  input.messages = chat::messages_from_json(
      messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  input.special = file_.special;
  input.now = local_time();
  input.add_generation_prompt = prompt;
  return template_.render(input);
}

void Conversation::find_ends() {
  nlohmann::ordered_json turn = {{{"role", "user"}, {"content", "a"}},
                                 {{"role", "assistant"}, {"content", kWords}}};
  chat::RenderedChat chat = render(turn, false);
  size_t at = chat.text.bytes.rfind(kWords);
  if (at == std::string::npos) return;
  at += std::string_view(kWords).size();
  finetune::ChatTokens tokens = finetune::encode_chat(chat.text, tokenizer_);
  const auto special = tokenizer_.special_tokens();
  auto is_special = [&](int32_t id) {
    return std::any_of(special.begin(), special.end(), [&](const auto& t) { return t.id == id; });
  };
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.bytes[i].begin >= at && is_special(tokens.ids[i])) {
      ends_.push_back(tokens.ids[i]);
      return;
    }
  end_text_ = trim(chat.text.bytes.substr(at));
}

std::vector<int32_t> Conversation::ask(const std::string& text) {
  say("user", text);
  return finetune::encode_chat(render(messages_, true).text, tokenizer_).ids;
}

std::string Conversation::answer(const std::vector<int32_t>& ids) {
  std::string text = tokenizer_.decode(ids);
  if (size_t end = end_text_.empty() ? std::string::npos : text.find(end_text_);
      end != std::string::npos)
    text.resize(end);
  text = trim(text);
  say("assistant", text);
  return text;
}

}  // namespace mtrain
