// Converts conversations of any format to OpenAI's list of messages. Used by the readers of
// records only.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/finetune/record_fields.h"
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
  /// The text in the record's field `system`, unless `first`, the message that follows, is the same
  /// one; another system's message there is refused. `first`: null where nothing follows.
  void add_system(const Json& record, const Json* first, bool may_train = true);
  void add_text(const char* role, const std::string& text, bool may_train = true);
  /// The tools that may be called: a list, or a list as JSON text.
  void set_tools(const Json& tools);
  /// REQUIRES: at least one message was added.
  Example finish() &&;
  /// The messages so far, as a chat template gets them.
  const Json& messages() const { return *messages_; }
  /// Whether the first message is of this role.
  bool begins_with(const std::string& role) const;
  bool empty() const { return size() == 0; }
  size_t size() const;

 private:
  const FormatOptions& options_;
  std::unique_ptr<Json> messages_, tools_;
  std::vector<bool> trains_, excluded_;
};

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

class ExampleEncoder;

/// Counts records whose texts spell special tokens in plain characters, among the first ones of a
/// file. Value.
struct SpelledTokens {
  int64_t seen = 0, count = 0;
  std::string first, token;
  void note(const ExampleEncoder& encoder, const Example& example);
  /// A warning of a file with such records; empty: there are none.
  std::string warning(const std::string& file) const;
};

}  // namespace mtrain::finetune
