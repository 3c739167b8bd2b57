// Example: one parsed record of fine-tuning data before tokenization; and TokenizedExample, its
// tokens. Plain values that own their data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mtrain::finetune {

/// A piece of text, and whether it is trained on.
struct Segment {
  std::string text;
  bool trained = false;
};

struct Example {
  enum class Kind : uint8_t {
    chat,      // messages, for a chat template
    prompted,  // segments of one text: a token is trained when the segment in which it ends is
               // trained
    segments,  // segments that are encoded separately
    tokens     // ids
  };
  Kind kind = Kind::chat;
  std::string place;  // "chats.jsonl:7", for messages
  // chat
  std::string messages, tools;  // JSON: a list of {role, content, …}; a list, or empty
  std::vector<bool> trains;     // of each message: whether it may be trained on as an assistant's
  std::vector<bool> excluded;   // of each message: whether the record excludes it from training, by
                                // weight or train
  // prompted and segments
  std::vector<Segment> texts;
  // tokens
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // of each id
};

/// An encoded example: ids, and which of them are trained on (predicted).
struct TokenizedExample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
};

}  // namespace mtrain::finetune
