// Conversation: the messages of a user and a model, formatted by the model's chat template. Keeps a
// reference to its tokenizer. For one thread at a time.
#pragma once
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The time of now, for templates that write it.
std::tm local_time();
/// The chat template that a fine-tuning run sets, by name or as a file; nothing where it uses the
/// tokenizer's or none.
std::optional<chat::TemplateFile> template_of_run(const Recipe& recipe);
/// Its text, for an export; empty: none. A file that is gone is a warning: the weights do not need
/// it.
std::string chat_template_text(const Recipe& recipe);

class Conversation {
 public:
  /// Throws Error(data) for a template that cannot be used.
  Conversation(const Tokenizer& tokenizer, chat::TemplateFile file);
  void begin_with(const std::string& text) { say("system", text); }
  /// Adds the user's turn; returns the ids up to the start of the model's answer.
  std::vector<int32_t> ask(const std::string& text);
  /// Adds the model's turn; returns its text without the end of the turn.
  std::string answer(const std::vector<int32_t>& ids);
  /// Ids that end a turn.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  void say(const char* role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }
  chat::RenderedChat render(const nlohmann::ordered_json& messages, bool prompt) const;
  void find_ends();

  const Tokenizer& tokenizer_;
  chat::TemplateFile file_;
  chat::ChatTemplate template_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<int32_t> ends_;
  std::string end_text_;  // what a template without an end-of-turn token writes after a turn
};

}  // namespace mtrain
