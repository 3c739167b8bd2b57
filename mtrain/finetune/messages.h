// Converts conversations of any format to OpenAI's list of messages. Used by record_format.cc and
// preference.cc only.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// Collects the messages of one conversation. Refers to its options. Not synchronised: one thread
/// at a time.
class Conversation {
 public:
  explicit Conversation(const FormatOptions& options);
  Conversation(Conversation&&) noexcept;
  ~Conversation();
  /// One message {role, content, …} or {from, value}; `may_train` false: the message is not trained
  /// on. Throws RecordFault.
  void add(const Json& message, bool may_train = true);
  /// All messages of a list. `what`: the field's name.
  void add_all(const Json& list, const std::string& what, bool may_train = true);
  void add_text(const char* role, const std::string& text, bool may_train = true);
  /// The tools that may be called: a list, or a list as JSON text.
  void set_tools(const Json& tools);
  /// REQUIRES: at least one message was added.
  Example finish() &&;
  /// The contents of the messages of a role that are texts.
  std::vector<std::string> texts_of(const std::string& role) const;
  /// Whether the first message is of this role.
  bool begins_with(const std::string& role) const;
  bool empty() const { return size() == 0; }
  size_t size() const;

 private:
  const FormatOptions& options_;
  std::unique_ptr<Json> messages_, tools_;
  std::vector<bool> trains_, excluded_;
};

/// The field that a format calls `name`, mapped by the recipe's columns; null when it is absent or
/// null.
const Json* find_field(const Json& record, const char* name, const Columns& columns);

/// "has no field 'a'; its fields are b, c", or that the field is null.
std::string missing_field(const Json& record, const char* name, const Columns& columns);
/// The names of a record's fields, for messages.
std::string field_names(const Json& record);

/// Refuses a system message and tools of a record whose prompt and answer are texts: only a chat
/// template puts them into a text. Throws RecordFault.
void refuse_with_texts(const Json& record, const Columns& columns);
/// Throws RecordFault if a record with a prompt also has an input or a history, which only alpaca
/// records combine with their prompt.
void refuse_alpaca_fields(const Json& record, const Columns& columns);

/// Whether the text to train on, or a message of the assistant without tool calls, is empty.
bool has_empty_answer(const Example& example);

/// Counts records with empty answers and keeps the place of the first one. Value.
struct EmptyAnswers {
  int64_t count = 0;
  std::string first;
  void note(const Example& example) {
    if (has_empty_answer(example) && count++ == 0) first = example.place;
  }
  /// A warning of a file with so many records; empty: there are none.
  std::string warning(const std::string& file, int64_t records) const;
};

}  // namespace mtrain::finetune
