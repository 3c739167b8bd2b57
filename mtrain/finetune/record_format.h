// Formats of fine-tuning records: the meaning of their fields. Stateless functions over values, and
// RecordReader, which is immutable: const members are safe from any thread.
//
//   alpaca             {instruction, input?, output, system?, history?: [[question, answer], …]}
//   sharegpt           {conversations: [{from, value}, …], system?, tools?}
//   openai             {messages: [{role, content, tool_calls?, weight?}, …], tools?}
//   prompt_completion  {prompt, completion}: texts, or lists of messages; the prompt of messages
//   may
//                      be a text
//   text               {text}
//   segments           {segments: [{text, label}, …]}
//   tokens             {input_ids, labels?, attention_mask?}
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/finetune/example.h"

namespace mtrain::finetune {

using Json = nlohmann::ordered_json;

enum class RecordFormat : uint8_t {
  alpaca,
  sharegpt,
  openai,
  prompt_completion,
  text,
  segments,
  tokens
};
/// Their names, in the order of the enumeration.
MT_API std::vector<std::string> record_format_names();
MT_API const char* name(RecordFormat format);
/// The name of a format as a part of an identity. That of segments has changed since an earlier
/// version, which did not recognize special tokens in them.
MT_API std::string encoded_format(const std::string& format);

/// The name of a field in the format -> its name in the file.
using Columns = std::map<std::string, std::string>;

struct FormatOptions {
  Columns columns;
  std::map<std::string, std::string> roles;  // further role names: "bot" -> "assistant"
  bool chat_prompts = false;                 // alpaca: render as a chat, not by `prompt`
  bool trains_all = false;                   // messages of every role are trained on
  /// alpaca: the text before an answer, with {instruction} and {input}; empty: Stanford's.
  std::string prompt;
};

/// Detects the format by the fields of these records. Throws Error(data) that names the fields and
/// the candidates when no format or several formats match. `where`: the file, for messages.
MT_API RecordFormat detect_format(std::span<const Json> records, const FormatOptions& options,
                                  const std::string& where);

/// A fault of a record's content, without its location.
struct RecordFault {
  std::string what, hint;
};

/// The names of roles that chat templates use: "system", "user", "assistant", "tool" and so on.
MT_API const std::vector<std::string>& template_roles();

/// The fields of a message that say whether it is trained on.
struct MessageWeight {
  bool excluded = false;  // a field is 0 or false
  std::string wanted;     // the field that is 1 or true, for messages; empty: none
};

/// Removes the fields that weight a message (weight, train, training, loss_weight, loss). Throws
/// RecordFault for other weights than 0 and 1, and for fields that contradict each other.
MT_API MessageWeight take_weight(Json& message);

class MT_API RecordReader {
 public:
  RecordReader(RecordFormat format, FormatOptions options)
      : format_(format), options_(std::move(options)) {}
  /// Throws RecordFault.
  Example read(const Json& record, const std::string& place) const;
  RecordFormat format() const { return format_; }

 private:
  Example alpaca(const Json& record) const;
  Example alpaca_chat(const Json& record) const;
  Example chat(const Json& record, const char* list) const;
  Example prompt_completion(const Json& record) const;
  Example segments(const Json& record) const;
  static Example tokens(const Json& ids, const Json* labels, const Json* mask);
  const Json& field(const Json& record, const char* name) const;
  const Json* find(const Json& record, const char* name) const;
  std::string text_of(const Json& record, const char* name) const;
  std::string text_or(const Json& record, const char* name) const;

  RecordFormat format_;
  FormatOptions options_;
};

/// The alpaca text before an answer. `form`: like FormatOptions::prompt.
MT_API std::string alpaca_prompt(const std::string& instruction, const std::string& input,
                                 const std::string& form);

}  // namespace mtrain::finetune
