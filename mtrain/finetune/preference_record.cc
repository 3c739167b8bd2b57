#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/finetune/answer_prompt.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/preference.h"
#include "mtrain/finetune/record_fields.h"

namespace mtrain::finetune {
namespace {

const std::vector<const char*> kLists = {"prompt", "conversations", "messages"};

constexpr const char* kSeparateFiles =
    "a file has one of the two, as its first record or dataset.format says: write pairs and labels "
    "into separate files";

const Json& needed(const Json& record, const char* name, const FormatOptions& options) {
  if (const Json* found = find_field(record, name, options.columns)) return *found;
  const std::string_view wanted = name;
  if (wanted == "chosen" && find_field(record, "label", options.columns))
    throw RecordFault{"has a label, in a file of chosen and rejected answers", kSeparateFiles};
  if (wanted == "label" && find_field(record, "chosen", options.columns))
    throw RecordFault{"has chosen and rejected answers, in a file of labels", kSeparateFiles};
  throw RecordFault{
      missing_field(record, name, options.columns),
      missing_help(record, name, options.columns,
                   "wanted chosen and rejected, or a label; dataset.columns maps them if they have "
                   "other names")};
}

/// The text that two answers begin with, which is their prompt. It ends before the first word that
/// differs, since parts of words have other tokens; the blank before that word belongs to the
/// answers, as in trl's extract_prompt(). No answer becomes empty. Empty: they begin differently.
std::string common_beginning_of_texts(const std::string& good, const std::string& bad) {
  constexpr const char* kBlanks = " \t\r\n";
  const std::string_view shared(
      good.data(), static_cast<size_t>(std::ranges::mismatch(good, bad).in1 - good.begin()));
  size_t end = shared.find_last_of(kBlanks) + 1;  // 0: nowhere
  while (end > 0 && (good.find_first_not_of(kBlanks, end) == std::string::npos ||
                     bad.find_first_not_of(kBlanks, end) == std::string::npos)) {
    const size_t word = shared.find_last_not_of(kBlanks, end - 1);
    end = word == std::string::npos ? 0 : shared.find_last_of(kBlanks, word) + 1;
  }
  if (end > 0 && shared[end - 1] == ' ') --end;
  const std::string out(shared.substr(0, end));
  return trim(out).empty() ? "" : out;
}

/// A record of texts without a prompt where other fields may be it, or where none can be found.
[[noreturn]] void refuse_without_prompt(const Json& record, const FormatOptions& options,
                                        const std::string& otherwise) {
  throw RecordFault{
      missing_field(record, "prompt", options.columns),
      missing_help(
          record, "prompt", options.columns,
          cat("wanted a prompt: if it has another name, dataset.columns='{prompt: NAME}'; ",
              otherwise, columns_setting(options.columns, {{"prompt", kNoField}})))};
}

/// The prompt of two answers that are texts.
std::string prompt_of_texts(const Json& record, const std::string& chosen,
                            const std::string& rejected, const FormatOptions& options) {
  const bool none = is_left_out("prompt", options.columns);
  const auto texts = std::ranges::count_if(record, [](const Json& v) { return v.is_string(); });
  // Another text may be the prompt under another name.
  if (!none && (options.columns.contains("prompt") || texts > 2))
    refuse_without_prompt(record, options, "if chosen and rejected begin with it, ");
  const std::string out = common_beginning_of_texts(chosen, rejected);
  if (out.empty())
    throw RecordFault{"has no prompt, and chosen and rejected have no first words in common",
                      "write {\"prompt\": …, \"chosen\": …, \"rejected\": …}, or chosen and "
                      "rejected that both begin with the prompt"};
  return out;
}

/// If the answer is a text, messages of the record may only repeat its prompt and the answer.
void refuse_lists_of_texts(const Json& record, const std::string& name, const std::string& answer,
                           const FormatOptions& options) {
  const Json* prompt = find_field(record, "prompt", options.columns);
  const auto says = [](const Json& message, const char* role, const std::string& text) {
    return message.at("role") == role && message.contains("content") &&
           message["content"].is_string() &&
           trim(message["content"].get_ref<const std::string&>()) == trim(text);
  };
  for (const MessageList& list : lists_of(record, {"conversations", "messages"}, options)) {
    const bool asked = prompt && prompt->is_string() &&
                       std::any_of(list.read.begin(), list.read.end(), [&](const Json& message) {
                         return says(message, "user", prompt->get<std::string>());
                       });
    const Json& last = list.read.back();
    if (asked && (says(last, "assistant", answer) || last.at("role") != "assistant")) continue;
    const std::string field = printable(name_in_file(list.name, options.columns), 60);
    throw RecordFault{
        cat("has messages in the field '", field, "', and a text in the field '",
            printable(name_in_file(name, options.columns), 60), "'",
            asked ? " that they do not end with" : ""),
        cat("write the answer as messages, [{\"role\": \"assistant\", \"content\": …}]; or ignore "
            "the messages with ",
            columns_setting(options.columns, {{list.name, kNoField}}))};
  }
}

Example text_answer(const std::string& prompt, const std::string& words) {
  Example out;
  out.kind = Example::Kind::prompted;
  out.texts = {{prompt, false}, {words, true}};
  return out;
}

/// The prompt of answers that are texts, if the record has the field.
std::optional<std::string> text_prompt(const Json& record, const FormatOptions& options) {
  const Json* prompt = find_field(record, "prompt", options.columns);
  if (!prompt) return std::nullopt;
  if (!prompt->is_string())
    throw RecordFault{
        cat("has a prompt and an answer that are not both texts: the field '",
            printable(name_in_file("prompt", options.columns), 60), "' has ", prompt->type_name()),
        "wanted two texts, or two lists of messages"};
  return prompt->get<std::string>();
}

Preference read_text_pair(const Json& record, const std::string& chosen,
                          const std::string& rejected, const FormatOptions& options) {
  refuse_with_texts(record, options.columns);
  refuse_lists_of_texts(record, "chosen", chosen, options);
  if (const auto prompt = text_prompt(record, options)) {
    refuse_alpaca_fields(record, options.columns);
    return {text_answer(*prompt, chosen), text_answer(*prompt, rejected)};
  }
  const std::string prompt = prompt_of_texts(record, chosen, rejected, options);
  refuse_alpaca_fields(record, options.columns);
  return {text_answer(prompt, chosen.substr(prompt.size())),
          text_answer(prompt, rejected.substr(prompt.size()))};
}

Preference read_pair(const Json& record, const FormatOptions& options) {
  const Json &chosen = needed(record, "chosen", options),
             &rejected = needed(record, "rejected", options);
  if (chosen.is_string() && rejected.is_string())
    return read_text_pair(record, chosen.get_ref<const std::string&>(),
                          rejected.get_ref<const std::string&>(), options);
  if (chosen.is_string() || rejected.is_string())
    throw RecordFault{
        cat("has answers that are not both texts: ", chosen.type_name(), " in the field '",
            printable(name_in_file("chosen", options.columns), 60), "', ", rejected.type_name(),
            " in the field '", printable(name_in_file("rejected", options.columns), 60), "'"),
        "wanted two texts, or two lists of messages"};
  AnswersOfPrompt from{.answers = {read_messages(chosen, "chosen", options),
                                   read_messages(rejected, "rejected", options)},
                       .given = lists_of(record, kLists, options),
                       .conversation = std::nullopt};
  const FoundPrompt prompt = find_prompt(record, from, options);
  refuse_alpaca_fields(record, options.columns);
  return {prompted_chat(record, prompt, from.answers[0], options),
          prompted_chat(record, prompt, from.answers[1], options)};
}

Example read_completion(const Json& record, const Json& completion, const FormatOptions& options) {
  if (completion.is_string()) {
    refuse_with_texts(record, options.columns);
    const auto& words = completion.get_ref<const std::string&>();
    refuse_lists_of_texts(record, "completion", words, options);
    const auto prompt = text_prompt(record, options);
    if (!prompt && !is_left_out("prompt", options.columns))
      refuse_without_prompt(record, options, "if the completions have none, ");
    refuse_alpaca_fields(record, options.columns);
    return text_answer(prompt.value_or(""), words);
  }
  AnswersOfPrompt from{.answers = {read_messages(completion, "completion", options)},
                       .given = lists_of(record, kLists, options),
                       .conversation = std::nullopt};
  const FoundPrompt prompt = find_prompt(record, from, options);
  refuse_alpaca_fields(record, options.columns);
  return prompted_chat(record, prompt, from.answers[0], options);
}

/// The conversation of a record without a completion; its last message is the answer.
Example read_conversation(const Json& record, const FormatOptions& options) {
  std::vector<MessageList> lists = lists_of(record, {"conversations", "messages"}, options);
  if (lists.empty())
    throw RecordFault{cat("has a label but neither messages nor a completion; its fields are ",
                          field_names(record)),
                      missing_help(record, "completion", options.columns,
                                   "wanted {\"messages\": …, \"label\": …} or {\"prompt\": …, "
                                   "\"completion\": …, \"label\": …}; dataset.columns maps them "
                                   "if they have other names")};
  MessageList talk = std::move(lists.front()), last = talk;
  if (lists.size() > 1 && lists[1].read != talk.read)
    throw RecordFault{"has conversations, and messages that differ from them",
                      cat("ignore one of them, as with ",
                          columns_setting(options.columns, {{"messages", kNoField}}))};
  if (talk.read.back().at("role") != "assistant")
    throw RecordFault{cat("has a conversation in the field '",
                          printable(name_in_file(talk.name, options.columns), 60),
                          "' that ends with a message "
                          "of the ",
                          printable(talk.read.back().at("role").get<std::string>(), 40)),
                      "the label is that of the last message, which is the assistant's"};
  last.raw.assign(1, talk.raw.back()), last.read.assign(1, talk.read.back());
  talk.raw.pop_back();
  talk.read.pop_back();
  AnswersOfPrompt from{.answers = {std::move(last)},
                       .given = lists_of(record, {"prompt"}, options),
                       .conversation = std::move(talk)};
  const FoundPrompt prompt = find_prompt(record, from, options);
  refuse_alpaca_fields(record, options.columns);
  return prompted_chat(record, prompt, from.answers[0], options);
}

Preference read_label(const Json& record, const FormatOptions& options) {
  const Json& label = needed(record, "label", options);
  if (!label.is_boolean())
    throw RecordFault{cat("has the label ",
                          printable(label.dump(-1, ' ', false, Json::error_handler_t::replace), 40),
                          ", which is neither true nor false"),
                      "a label is true for a good answer and false for a bad one, without quotes"};
  const Json* completion = find_field(record, "completion", options.columns);
  Preference out;
  out.good = label.get<bool>();
  out.chosen = completion ? read_completion(record, *completion, options)
                          : read_conversation(record, options);
  return out;
}

}  // namespace

Preference read_preference(const Json& record, const std::string& format,
                           const FormatOptions& options, const std::string& place) {
  Preference out = format == "labels" ? read_label(record, options) : read_pair(record, options);
  out.chosen.place = place;
  if (out.rejected) out.rejected->place = place;
  return out;
}

}  // namespace mtrain::finetune
