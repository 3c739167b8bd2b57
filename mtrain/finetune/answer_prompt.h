// Finds the prompt of answers that are lists of messages, so that no message is written twice and
// no answer becomes a part of the prompt:
//
//   answers that begin with the assistant carry on the messages of the prompt
//   answers that begin with the user are whole conversations: the prompt is their common beginning,
//     as in TRL's extract_prompt(), or of one answer all but its last message; the record's prompt
//     and messages may only repeat it
//
// Used by record_format.cc and preference_record.cc only. Stateless functions over values.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// A list of messages of a record.
struct MessageList {
  std::string name;        // of the field, as the format calls it
  std::vector<Json> raw;   // as in the record
  std::vector<Json> read;  // the same as a chat template gets them
};

/// The messages of a field: a list, or a single message. Throws RecordFault.
MessageList read_messages(const Json& value, const std::string& name, const FormatOptions& options);
/// The lists of messages that a record has under these names and that no column uses otherwise.
std::vector<MessageList> lists_of(const Json& record, const std::vector<const char*>& names,
                                  const FormatOptions& options);

/// A record's answers, and what it says of the prompt.
struct AnswersOfPrompt {
  std::vector<MessageList> answers;         // chosen and rejected, or one
  std::vector<MessageList> given;           // which may end with the first answer
  std::optional<MessageList> conversation;  // of which the answer was the last message
};

struct FoundPrompt {
  std::vector<Json> before;  // messages before each answer, as in the record
  size_t repeated = 0;       // messages at the beginning of each answer that are of the prompt
};

/// Throws RecordFault for answers without a prompt, and for fields that contradict each other.
FoundPrompt find_prompt(const Json& record, const AnswersOfPrompt& from,
                        const FormatOptions& options);

/// The prompt and one of its answers as a conversation of which the answer is trained on.
Example prompted_chat(const Json& record, const FoundPrompt& prompt, const MessageList& answer,
                      const FormatOptions& options);

}  // namespace mtrain::finetune
