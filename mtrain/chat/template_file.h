// Reads chat templates from a tokenizer's folder: from a separate file or from
// tokenizer_config.json. Stateless functions; safe from any thread.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::chat {

struct TemplateFile {
  std::string name;    // the file's name, for errors
  std::string source;  // Jinja
  // "bos_token", "eos_token", …: from the tokenizer_config.json of the same folder, if it exists.
  std::map<std::string, std::string> special;
  std::vector<std::string>
      text_marks;  // texts that look like special tokens but are plain text in this template
  bool has_names = false;  // comes from a list of templates, each with a name
};

/// `path`: a file of Jinja, a tokenizer_config.json, or a folder with either; a file
/// chat_template.jinja takes precedence over tokenizer_config.json, as in transformers. `which`:
/// the name, when there are several templates ("default", "tool_use"). Throws Error(data) that
/// lists the templates that exist, Error(io) when a file cannot be read.
MT_API TemplateFile read_template(const std::filesystem::path& path,
                                  const std::string& which = "default");

}  // namespace mtrain::chat
