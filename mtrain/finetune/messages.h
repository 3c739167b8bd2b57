// Conversations of any make as OpenAI's list of messages. For record_format.cc and preference.cc.
// Immutable once made.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// Collects the messages of one conversation. For one thread.
class Conversation {
 public:
  explicit Conversation(const FormatOptions& options);
  Conversation(Conversation&&) noexcept;
  ~Conversation();
  /// One message {role, content, …} or {from, value}; `may_train` false: its words are not learnt.
  /// Throws RecordFault.
  void add(const Json& message, bool may_train = true);
  /// All of a list. `what`: the field's name.
  void add_all(const Json& list, const std::string& what, bool may_train = true);
  void add_text(const char* role, const std::string& text, bool may_train = true);
  /// The tools that may be called: a list, or JSON text of one.
  void set_tools(const Json& tools);
  /// REQUIRES: at least one message was added.
  Example finish() &&;
  bool empty() const { return size() == 0; }
  size_t size() const;

 private:
  const FormatOptions& options_;
  std::unique_ptr<Json> messages_, tools_;
  std::vector<bool> spoken_, silenced_;
};

/// The field that a format calls `name`, by the recipe's columns; null when the record has it not,
/// or as null.
const Json* find_field(const Json& record, const char* name, const Columns& columns);

}  // namespace mtrain::finetune
