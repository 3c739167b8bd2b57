// Dialogue: the messages of a user and a model, formatted by the model's chat template. Refers to
// its tokenizer, which must outlive it. For one thread at a time.
#pragma once
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain::finetune {

class MT_API Dialogue {
 public:
  /// `now`: the time for templates that write it. Throws Error(data) for a template that cannot be
  /// used.
  Dialogue(const Tokenizer& tokenizer, chat::TemplateFile file, const std::tm& now);
  ~Dialogue();
  Dialogue(const Dialogue&) = delete;
  Dialogue& operator=(const Dialogue&) = delete;
  /// Begins with a system message.
  void begin_with(const std::string& text);
  /// Adds the user's turn; returns the ids up to the start of the model's answer, and what ends it.
  AskedPrompt ask(const std::string& text);
  /// Adds a turn that the model has had before.
  void answered(const std::string& text);
  /// Adds the model's turn; returns its text without the end of the turn.
  std::string answer(const std::vector<int32_t>& ids);

 private:
  void say(const char* role, const std::string& text);
  chat::RenderedChat render(const nlohmann::ordered_json& messages, bool prompt) const;
  void find_ends();

  const Tokenizer& tokenizer_;
  const std::tm now_;
  chat::TemplateFile file_;
  chat::ChatTemplate template_;
  std::unique_ptr<nlohmann::ordered_json> messages_;
  AskedPrompt asked_;  // the last turn of the user
};

}  // namespace mtrain::finetune
