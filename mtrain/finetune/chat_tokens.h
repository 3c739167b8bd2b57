// Encodes a rendered conversation to tokens. Stateless functions; safe from any thread.
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
  std::vector<chat::Stretch> bytes;  // of each id, in the text; neighbors may share a character
};

/// Whether a token has a part in one of the stretches: a token that begins in a header and contains
/// the first letters of an answer is trained on, as in transformers and TRL.
MT_API bool is_within(const chat::Stretch& token, const std::vector<chat::Stretch>& stretches);

/// Encodes a rendered conversation. Only text written by the template becomes special tokens
/// (chat::split_special).
MT_API ChatTokens encode_chat(const chat::Text& text, const Tokenizer& tokenizer);

/// Adds "bos_token", "eos_token" and "pad_token" from the tokenizer's ids, where the template's
/// files do not define them.
MT_API void add_special_names(const Tokenizer& tokenizer,
                              std::map<std::string, std::string>& special);

}  // namespace mtrain::finetune
