// Ready-made chat templates, for tokenizers that bring none: the turns of well-known models by name. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/chat/template_file.h"

namespace mtrain::chat {

/// "alpaca", "chatml" and so on, sorted.
MT_API std::vector<std::string> ready_made_names();
/// Its special tokens are the tokenizer's. Throws Error(config) naming what there is.
MT_API TemplateFile ready_made(const std::string& name);

}  // namespace mtrain::chat
