// Chat templates where models keep them: in the tokenizer's folder, as a file of their own or in
// tokenizer_config.json. Stateless.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::chat {

struct TemplateFile {
  std::string name;    // of the file, for errors
  std::string source;  // Jinja
  // "bos_token", "eos_token", …: from the tokenizer_config.json of the same folder, if it has one.
  std::map<std::string, std::string> special;
  std::vector<std::string>
      text_marks;  // what looks like special tokens, and is text in this template
};

/// `path`: a file of Jinja, a tokenizer_config.json, or a folder with either; a file
/// chat_template.jinja goes before the settings, as in transformers. `which`: among several named
/// templates ("default", "tool_use"). Throws Error(data) naming what there is, Error(io) for what
/// cannot be read.
MT_API TemplateFile read_template(const std::filesystem::path& path,
                                  const std::string& which = "default");

}  // namespace mtrain::chat
