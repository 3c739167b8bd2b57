// Ready-made chat templates, for tokenizers that bring none: the turns of well-known models by
// name. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/chat/template_file.h"

namespace mtrain::chat {

/// "alpaca", "chatml" and so on, sorted.
MT_API std::vector<std::string> ready_made_names();
/// Its special tokens are the tokenizer's. Throws Error(config) naming what there is.
MT_API TemplateFile ready_made(const std::string& name);
/// What a person gives for a template: a file or folder as in read_template(), or a name of these
/// where there is no such file.
MT_API TemplateFile find_template(const std::string& path_or_name,
                                  const std::string& which = "default");

}  // namespace mtrain::chat
