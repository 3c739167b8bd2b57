#include "mtrain/finetune/dialogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "mtrain/base/text.h"
#include "mtrain/finetune/chat_tokens.h"

namespace mtrain::finetune {
namespace {

constexpr const char* kWords = "wordsofanassistant";  // to find what a template writes after it

}  // namespace

Dialogue::Dialogue(const Tokenizer& tokenizer, chat::TemplateFile file, const std::tm& now)
    : tokenizer_(tokenizer),
      now_(now),
      file_(std::move(file)),
      template_(file_.source, file_.name),
      messages_(std::make_unique<nlohmann::ordered_json>(nlohmann::ordered_json::array())) {
  add_special_names(tokenizer, file_.special);
  asked_.turn = true;
  find_ends();
}

Dialogue::~Dialogue() = default;

void Dialogue::say(const char* role, const std::string& text) {
  messages_->push_back({{"role", role}, {"content", text}});
}

void Dialogue::begin_with(const std::string& text) { say("system", text); }

chat::RenderedChat Dialogue::render(const nlohmann::ordered_json& messages, bool prompt) const {
  chat::ChatInput input;
  input.messages = chat::messages_from_json(
      messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  input.special = file_.special;
  input.now = now_;
  input.add_generation_prompt = prompt;
  return template_.render(input);
}

void Dialogue::find_ends() {
  nlohmann::ordered_json turn = {{{"role", "user"}, {"content", "a"}},
                                 {{"role", "assistant"}, {"content", kWords}}};
  chat::RenderedChat chat = render(turn, false);
  size_t at = chat.text.bytes.rfind(kWords);
  if (at == std::string::npos) return;
  at += std::string_view(kWords).size();
  ChatTokens tokens = encode_chat(chat.text, tokenizer_);
  const auto special = tokenizer_.special_tokens();
  auto is_special = [&](int32_t id) {
    return std::any_of(special.begin(), special.end(), [&](const auto& t) { return t.id == id; });
  };
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.bytes[i].begin >= at && is_special(tokens.ids[i])) {
      asked_.ends.push_back(tokens.ids[i]);
      return;
    }
  asked_.end_text = trim(chat.text.bytes.substr(at));
}

AskedPrompt Dialogue::ask(const std::string& text) {
  say("user", text);
  asked_.ids = encode_chat(render(*messages_, true).text, tokenizer_).ids;
  return asked_;
}

void Dialogue::answered(const std::string& text) { say("assistant", text); }

std::string Dialogue::answer(const std::vector<int32_t>& ids) {
  std::string text = tokenizer_.decode(ids);
  asked_.trim_answer(text);
  say("assistant", text);
  return text;
}

}  // namespace mtrain::finetune
