// Ready-made chat templates, for tokenizers that bring none: the turns of well-known models by name. Stateless.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/chat/template_file.h"

namespace mtrain::chat {

/// "alpaca", "chatml" and so on, sorted.
MT_API std::vector<std::string> ready_made_names();
/// Null: there is none of this name. Special tokens are left to the tokenizer.
MT_API const char* ready_made_template(std::string_view name);
/// What stands for one token in other models of a template's family but is plain text in this one: zephyr's "<|user|>".
MT_API std::vector<std::string> ready_made_text_marks(std::string_view name);

}  // namespace mtrain::chat
