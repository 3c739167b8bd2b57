// The chat template of a fine-tuning run. Stateless functions; safe from any thread.
#pragma once
#include <ctime>
#include <optional>
#include <string>

#include "mtrain/chat/template_file.h"
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

}  // namespace mtrain
