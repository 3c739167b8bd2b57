// Ready-made chat templates of well-known models, by name, for tokenizers without a template.
// Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/chat/template_file.h"

namespace mtrain::chat {

/// "alpaca", "chatml" and so on, sorted.
MT_API std::vector<std::string> ready_made_names();
/// The template of this name. Its special tokens come from the tokenizer. Throws Error(config) that
/// lists the names.
MT_API TemplateFile ready_made(const std::string& name);
/// Resolves a user's choice of a template: a file or folder as in read_template(), else a
/// ready-made name.
MT_API TemplateFile find_template(const std::string& path_or_name,
                                  const std::string& which = "default");

}  // namespace mtrain::chat
