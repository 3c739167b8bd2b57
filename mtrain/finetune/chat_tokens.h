// The tokens of a rendered conversation. Stateless.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mtrain/chat/chat_template.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain::finetune {

struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<size_t> first_byte;  // of each id, in the text
};

/// Special tokens are made only of what the template wrote (chat::split_special); all else is text.
MT_API ChatTokens encode_chat(const chat::Text& text, const Tokenizer& tokenizer);

/// Adds "bos_token", "eos_token" and "pad_token" by the tokenizer's own ids, where the template's
/// files do not say.
MT_API void add_special_names(const Tokenizer& tokenizer,
                              std::map<std::string, std::string>& special);

}  // namespace mtrain::finetune
