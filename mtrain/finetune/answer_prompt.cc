#include "mtrain/finetune/answer_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/messages.h"
#include "mtrain/finetune/record_fields.h"

namespace mtrain::finetune {
namespace {

using Messages = std::vector<Json>;
using Place = Messages::const_iterator;

bool has_role(const Json& message, std::string_view role) { return message.at("role") == role; }

/// The first message that is not the system's.
Place behind_system(const Messages& list) {
  return std::find_if(list.begin(), list.end(), [](const Json& message) {
    return !has_role(message, "system") && !has_role(message, "developer");
  });
}

bool same_value(const Json& a, const Json& b) {
  if (!a.is_string() || !b.is_string()) return a == b;
  return trim(a.get_ref<const std::string&>()) == trim(b.get_ref<const std::string&>());
}

/// Whether two fields of a record write the same message: blanks around a text do not count, nor
/// does a key that only one of them has, except calls.
bool repeats(const Json& a, const Json& b) {
  if (a.contains("tool_calls") != b.contains("tool_calls")) return false;
  for (const auto& [key, value] : a.items())
    if (const auto other = b.find(key); other != b.end() && !same_value(value, *other))
      return false;
  return true;
}

/// Whether two answers have the same message in every respect.
bool identical(const Json& a, const Json& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items())
    if (const auto other = b.find(key); other == b.end() || *other != value) return false;
  return true;
}

std::string words_of(const Json& message) {
  const auto content = message.find("content");
  const bool text = content != message.end() && content->is_string();
  return cat("'", text ? printable(content->get<std::string>(), 60) : "…", "' of the ",
             printable(message.at("role").get<std::string>(), 40));
}

std::string quoted_name(const std::string& name, const FormatOptions& options) {
  return cat("'", printable(name_in_file(name, options.columns), 60), "'");
}

std::string without_field(const std::string& name, const FormatOptions& options) {
  return columns_setting(options.columns, {{name, kNoField}});
}

class PromptFinder {
 public:
  PromptFinder(const Json& record, const AnswersOfPrompt& from, const FormatOptions& options)
      : record_(record), from_(from), options_(options), first_(from.answers.front().read) {
    const Json* prompt = find_field(record, "prompt", options.columns);
    has_prompt_ = prompt != nullptr;
    if (prompt && prompt->is_string()) text_ = prompt->get<std::string>();
  }

  FoundPrompt find() {
    const auto whole = [](const MessageList& answer) {
      const Place begin = behind_system(answer.read);
      return begin != answer.read.end() && has_role(*begin, "user");
    };
    const bool all_whole = whole(from_.answers.front());
    if (whole(from_.answers.back()) != all_whole)
      throw RecordFault{cat("one of its answers has the user's message, and the other does not (",
                            answer_names(), ")"),
                        "give both answers the user's message, or neither"};
    all_whole ? find_in_answers() : find_before_answers();
    return std::move(out_);
  }

 private:
  /// The number of messages that both answers begin with; at least one is left for each.
  size_t common_beginning() const {
    const Messages &good = first_, &bad = from_.answers.back().read;
    const auto differ = std::mismatch(good.begin(), good.end(), bad.begin(), bad.end(), identical);
    const auto alike = static_cast<size_t>(differ.first - good.begin());
    require_one_prompt(good, bad, alike);
    return std::min(alike, std::min(good.size(), bad.size()) - 1);
  }

  /// Refuses two conversations whose first difference is a message that the model does not write.
  static void require_one_prompt(const Messages& good, const Messages& bad, size_t alike) {
    for (const Messages* messages : {&good, &bad})
      for (const char* other : {"user", "system", "developer"})
        if (alike < good.size() && alike < bad.size() && has_role((*messages)[alike], other))
          throw RecordFault{cat("has two conversations that differ in message ", alike + 1,
                                ", which is one of the ", other),
                            "chosen and rejected are answers to one prompt: their messages before "
                            "the answers are the same"};
  }

  // Answers that are whole conversations.

  void find_in_answers() {
    const bool pair = from_.answers.size() > 1;
    out_.repeated = pair ? common_beginning() : first_.size() - 1;
    const Place end = first_.begin() + static_cast<std::ptrdiff_t>(out_.repeated);
    size_t most = 0;  // of one answer: where the prompt that is given ends
    for (const MessageList& list : from_.given) most = std::max(most, end_of(list, end));
    if (!trim(text_).empty()) most = std::max(most, end_of_text(end));
    if (!pair && most > 0) out_.repeated = most;
  }

  /// Where the messages that a field repeats end in the first answer; 0: it has none.
  size_t end_of(const MessageList& list, Place end) {
    const Place begin = behind_system(first_), from = behind_system(list.read);
    take_system(list, from, begin != first_.begin());
    if (from == list.read.end()) return 0;
    const Place found = std::search(begin, end, from, list.read.end(), repeats);
    if (found != end)
      return static_cast<size_t>(found - first_.begin()) +
             static_cast<size_t>(list.read.end() - from);
    if (!std::equal(begin, first_.end(), from, list.read.end(), repeats)) refuse(list, from, begin);
    return static_cast<size_t>(end - first_.begin());
  }

  size_t end_of_text(Place end) const {
    const auto prompt = [&](const Json& message) {
      return has_role(message, "user") && message.contains("content") &&
             same_value(message["content"], Json(text_));
    };
    const Place found = std::find_if(first_.begin(), end, prompt);
    if (found == end) refuse_text(*behind_system(first_));
    return static_cast<size_t>(found - first_.begin()) + 1;
  }

  /// The system's messages of a field: those that the answers or another field have, or in front.
  void take_system(const MessageList& list, Place from, bool answers_have) {
    if (from == list.read.begin()) return;
    const Messages& other = answers_have ? first_ : before_;
    const Place end = behind_system(other);
    if (end == other.begin()) return put_system(list, from);
    if (std::equal(other.begin(), end, list.read.begin(), from, repeats)) return;
    throw RecordFault{
        cat("has the system's message ", words_of(list.read[0]), " in ",
            quoted_name(list.name, options_), ", and another one, ", words_of(other[0])),
        cat("leave one of them out; ", without_field(list.name, options_), " ignores ",
            quoted_name(list.name, options_))};
  }

  void put_system(const MessageList& list, Place from) {
    const auto count = from - list.read.begin();
    out_.before.insert(out_.before.begin(), list.raw.begin(), list.raw.begin() + count);
    before_.insert(before_.begin(), list.read.begin(), from);
  }

  [[noreturn]] void refuse(const MessageList& list, Place from, Place begin) const {
    const auto differ = std::mismatch(from, list.read.end(), begin, first_.end(), repeats);
    const auto number = static_cast<size_t>(differ.first - list.read.begin()) + 1;
    std::string what = cat("has messages in ", quoted_name(list.name, options_),
                           " that differ from the beginning of ", answer_names());
    if (differ.first != list.read.end() && differ.second != first_.end())
      what += cat(": message ", number, " is ", words_of(*differ.first), ", not ",
                  words_of(*differ.second));
    throw RecordFault{
        what, cat("answers that begin with the user's message contain the whole prompt: correct ",
                  quoted_name(list.name, options_), ", or ignore it with ",
                  without_field(list.name, options_))};
  }

  [[noreturn]] void refuse_text(const Json& said) const {
    throw RecordFault{cat("has the prompt '", printable(text_, 60),
                          "', but the user's messages differ from it: '",
                          printable(said.value("content", ""), 60), "'"),
                      cat("leave the prompt out, or messages of the user; ",
                          without_field("prompt", options_), " ignores it")};
  }

  std::string answer_names() const {
    std::string out;
    for (const MessageList& answer : from_.answers)
      out += cat(out.empty() ? "" : " and ", quoted_name(answer.name, options_));
    return out;
  }

  // Answers that carry on the prompt.

  void find_before_answers() {
    const bool system = behind_system(first_) != first_.begin();
    for (const MessageList& list : from_.given) add(without_answer(list));
    if (from_.conversation) add(*from_.conversation);
    if (system && (!out_.before.empty() || !trim(text_).empty()))
      throw RecordFault{
          cat("has a prompt, and answers that begin with a system message (", answer_names(), ")"),
          "write the prompt as a list of messages that begins with the system message"};
    add_text();
    if (!out_.before.empty()) return;
    if (!has_prompt_ && !system && !is_left_out("prompt", options_.columns))
      throw RecordFault{
          missing_field(record_, "prompt", options_.columns),
          missing_help(record_, "prompt", options_.columns,
                       cat("wanted a prompt, or answers that begin with the user's message; if the "
                           "answers have no prompt: ",
                           without_field("prompt", options_)))};
    if (from_.answers.size() > 1) out_.repeated = common_beginning();
  }

  /// A whole conversation that ends with the first answer, without that answer.
  MessageList without_answer(MessageList list) const {
    const auto more =
        static_cast<std::ptrdiff_t>(list.read.size()) - static_cast<std::ptrdiff_t>(first_.size());
    if (more > 0 && std::equal(first_.begin(), first_.end(), list.read.begin() + more,
                               list.read.end(), repeats)) {
      list.raw.erase(list.raw.begin() + more, list.raw.end());
      list.read.erase(list.read.begin() + more, list.read.end());
    }
    if (list.name == "prompt" || list.read.empty()) return list;
    const Json &last = list.read.back(), &next = first_.front();
    if (has_role(last, "assistant") && !last.contains("tool_calls") &&
        has_role(next, "assistant") && !next.contains("tool_calls"))
      throw RecordFault{
          cat("has messages in ", quoted_name(list.name, options_), " that end with ",
              words_of(last), ", which is not ", quoted_name(from_.answers.front().name, options_),
              ": ", words_of(next)),
          cat("end them with the user's message, or with that answer; ",
              without_field(list.name, options_), " ignores them")};
    return list;
  }

  /// Adds the messages of a field, or finds that another field has them.
  void add(const MessageList& list) {
    const Place from = behind_system(list.read);
    take_system(list, from, false);
    if (from == list.read.end()) return;
    const Place begin = behind_system(before_);
    if (std::search(begin, before_.cend(), from, list.read.end(), repeats) != before_.cend())
      return;
    if (begin != before_.cend() &&
        std::search(from, list.read.end(), begin, before_.cend(), repeats) == list.read.end())
      throw RecordFault{
          cat("has messages in ", quoted_name(list.name, options_), ", ", words_of(*from),
              ", and others in ", quoted_name(source_, options_), ", ", words_of(*begin)),
          cat("both are the messages before the answer: correct one, or ignore it with ",
              without_field(list.name, options_), " or ", without_field(source_, options_))};
    source_ = list.name;
    const auto system = begin - before_.cbegin(), count = from - list.read.begin();
    out_.before.erase(out_.before.begin() + system, out_.before.end());
    out_.before.insert(out_.before.end(), list.raw.begin() + count, list.raw.end());
    before_.erase(before_.begin() + system, before_.end());
    before_.insert(before_.end(), list.read.begin() + count, list.read.end());
  }

  /// A prompt that is a text is the user's message, unless the messages have it.
  void add_text() {
    if (text_.empty()) return;
    const Json* other = nullptr;
    for (const Json& message : before_) {
      if (!has_role(message, "user") || !message.contains("content")) continue;
      if (same_value(message["content"], Json(text_))) return;
      if (!other) other = &message;
    }
    if (other) refuse_text(*other);
    const auto system = behind_system(before_) - before_.cbegin();
    out_.before.insert(out_.before.begin() + system, Json{{"role", "user"}, {"content", text_}});
  }

  const Json& record_;
  const AnswersOfPrompt& from_;
  const FormatOptions& options_;
  const Messages& first_;    // the messages of the first answer
  bool has_prompt_ = false;  // the record has the field
  std::string text_;         // the prompt, where it is a text
  FoundPrompt out_;
  Messages before_;     // out_.before as a chat template gets it
  std::string source_;  // the field that it is from
};

}  // namespace

MessageList read_messages(const Json& value, const std::string& name,
                          const FormatOptions& options) {
  if (!value.is_array() && !value.is_object())
    throw RecordFault{cat("has ", value.type_name(), " in the field ", quoted_name(name, options)),
                      "wanted a message, {\"role\": …, \"content\": …}, or a list of messages"};
  MessageList out{.name = name, .raw = {}, .read = {}};
  if (value.is_object())
    out.raw.push_back(value);
  else
    out.raw.assign(value.begin(), value.end());
  Conversation read(options);
  for (const Json& message : out.raw) read.add(message);
  out.read.assign(read.messages().begin(), read.messages().end());
  return out;
}

std::vector<MessageList> lists_of(const Json& record, const std::vector<const char*>& names,
                                  const FormatOptions& options) {
  std::vector<MessageList> out;
  for (const char* name : names) {
    const Json* found = own_field(record, name, options.columns);
    if (!found || found->empty() || (found->is_string() && name == std::string_view("prompt")))
      continue;
    out.push_back(read_messages(*found, name, options));
  }
  return out;
}

FoundPrompt find_prompt(const Json& record, const AnswersOfPrompt& from,
                        const FormatOptions& options) {
  for (const MessageList& answer : from.answers)
    if (answer.read.empty())
      throw RecordFault{
          cat("has an answer without messages in the field ", quoted_name(answer.name, options)),
          "give it a message of the assistant, or leave such records out: dataset.on_bad=skip"};
  return PromptFinder(record, from, options).find();
}

Example prompted_chat(const Json& record, const FoundPrompt& prompt, const MessageList& answer,
                      const FormatOptions& options) {
  Conversation out(options);
  out.add_system(record, prompt.before.empty() ? &answer.raw.front() : &prompt.before.front(),
                 false);
  for (const Json& message : prompt.before) out.add(message, false);
  for (size_t i = 0; i < answer.raw.size(); ++i) out.add(answer.raw[i], i >= prompt.repeated);
  if (const Json* tools = find_field(record, "tools", options.columns)) out.set_tools(*tools);
  return std::move(out).finish();
}

}  // namespace mtrain::finetune
