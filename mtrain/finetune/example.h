// Example: one record of fine-tuning data, understood but not yet tokens; and what becomes of it.
// Values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mtrain::finetune {

/// A piece of text, and whether it is to be learnt.
struct Segment {
  std::string text;
  bool trained = false;
};

struct Example {
  enum class Kind : uint8_t {
    chat,      // messages, for a chat template
    prompted,  // segments that are one text: a token is trained where the text that it ends in is
    segments,  // segments that are encoded each by itself
    tokens     // ids
  };
  Kind kind = Kind::chat;
  std::string place;  // "chats.jsonl:7", for messages
  // chat
  std::string messages, tools;  // JSON: a list of {role, content, …}; a list, or empty
  std::vector<bool> spoken;     // of each message: whether it may be learnt as an assistant's
  std::vector<bool> silenced;  // of each message: whether the record says that it is not learnt, by
                               // weight or train
  // prompted and segments
  std::vector<Segment> texts;
  // tokens
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // of each id
};

/// What an example became: ids, and which of them are to be predicted.
struct TokenizedExample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
};

}  // namespace mtrain::finetune
