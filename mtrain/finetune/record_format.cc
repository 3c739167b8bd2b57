#include "mtrain/finetune/record_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/answer_prompt.h"
#include "mtrain/finetune/judged_records.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/messages.h"

namespace mtrain::finetune {
namespace {

struct FormatInfo {
  RecordFormat format;
  const char* name;
  std::vector<const char*> needed;  // fields that every record has
};

const std::vector<FormatInfo>& formats() {
  using enum RecordFormat;
  static const std::vector<FormatInfo> all = {
      {alpaca, "alpaca", {"instruction", "output"}},
      {sharegpt, "sharegpt", {"conversations"}},
      {openai, "openai", {"messages"}},
      {prompt_completion, "prompt_completion", {"prompt", "completion"}},
      {text, "text", {"text"}},
      {segments, "segments", {"segments"}},
      {tokens, "tokens", {"input_ids"}}};
  return all;
}

/// The message of a failed detection.
std::string fields_of(std::span<const Json> records) {
  std::vector<std::string> names;
  for (const auto& record : records)
    for (const auto& [key, value] : record.items())
      if (std::find(names.begin(), names.end(), key) == names.end() && names.size() < 12)
        names.push_back(key);
  return names.empty() ? "they have none" : printable(join(names, ", "), 300);
}

bool all_have(std::span<const Json> records, const char* field, const Columns& columns) {
  return std::all_of(records.begin(), records.end(),
                     [&](const Json& r) { return find_field(r, field, columns) != nullptr; });
}

/// The formats whose fields at least `enough` records have.
std::vector<const FormatInfo*> fitting_formats(std::span<const Json> records, int64_t enough,
                                               const Columns& columns) {
  std::vector<const FormatInfo*> found;
  for (const FormatInfo& format : formats())
    if (std::ranges::count_if(records, [&](const Json& record) {
          return std::ranges::all_of(format.needed, [&](const char* field) {
            return find_field(record, field, columns) != nullptr;
          });
        }) >= enough)
      found.push_back(&format);
  if (found.size() > 1)  // many files contain the whole text in addition to its parts
    std::erase_if(found, [](const FormatInfo* f) { return f->format == RecordFormat::text; });
  return found;
}

/// The setting with which records of other names are prompts with completions; empty: there is
/// none.
std::string likely_setting(std::span<const Json> records, FormatOptions options) {
  Columns found;
  for (const char* name : {"prompt", "completion"})
    if (!all_have(records, name, options.columns))
      if (std::string likely = likely_field(records[0], name, options.columns); !likely.empty())
        found.emplace(name, std::move(likely));
  const std::string setting = columns_setting(options.columns, found);
  for (const auto& [ours, theirs] : found) options.columns[ours] = theirs;
  const RecordReader reader(RecordFormat::prompt_completion, options);
  try {
    for (const Json& record : records) (void)reader.read(record, "");
  } catch (const RecordFault&) {
    return {};
  }
  return cat("dataset.format=", name(RecordFormat::prompt_completion), " ", setting);
}

/// The entry of dataset.columns for a field that has almost the name of one that makes a format:
/// "message" for "messages"; empty: there is none.
std::string nearly_named(const Json& record) {
  const std::vector<std::string> known = {"messages", "conversations", "instruction",
                                          "output",   "prompt",        "completion",
                                          "text",     "segments",      "input_ids"};
  for (const auto& [field, value] : record.items())
    if (const auto near = nearest(field, known, 1); !near.empty() && !record.contains(near[0]))
      return cat("did you mean '", near[0], "' by '", printable(field, 60), "'? dataset.columns='{",
                 near[0], ": ", printable(field, 60), "}'; else ");
  return {};
}

int64_t integer_of(const Json& list, size_t index, const char* name) {
  const Json& value = list[index];
  if (!value.is_number_integer())
    throw RecordFault{cat(name, "[", index, "] is not an integer but ", value.type_name()),
                      "wanted a list of token ids"};
  int64_t out = value.get<int64_t>();
  if (out < INT32_MIN || out > INT32_MAX ||
      (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX))
    throw RecordFault{cat(name, "[", index, "] is ", value.dump(), ", beyond 32 bits"),
                      "wanted a list of token ids of the tokenizer"};
  return out;
}

}  // namespace

std::vector<std::string> record_format_names() {
  std::vector<std::string> out;
  for (const auto& format : formats()) out.emplace_back(format.name);
  return out;
}

std::string encoded_format(const std::string& format) {
  return format == name(RecordFormat::segments) ? format + " with special tokens" : format;
}

const char* name(RecordFormat format) { return formats()[static_cast<size_t>(format)].name; }

RecordFormat detect_format(std::span<const Json> records, const FormatOptions& options,
                           const std::string& where) {
  const Columns& columns = options.columns;
  MT_USER_CHECK(!records.empty(), ErrorClass::data, cat(where, " has no records"),
                "wanted one object per line, or a list of objects");
  refuse_judged(records, options, where);
  const std::vector<const FormatInfo*> found =
      fitting_formats(records, std::ssize(records), columns);
  if (found.size() == 1) return found[0]->format;
  if (found.empty()) {  // a faulty record among them is reported where it is read
    const auto most = fitting_formats(records, std::ssize(records) / 2 + 1, columns);
    if (most.size() == 1) return most[0]->format;
  }
  refuse_hiding_columns(records, columns, where);
  std::vector<std::string> names;
  for (const auto* format : found) names.emplace_back(format->name);
  const std::string likely = found.empty() ? likely_setting(records, options) : std::string();
  throw Error(
      ErrorClass::data,
      cat("cannot tell the format of ", where, " by its first ",
          records.size() == 1 ? "record: its" : cat(records.size(), " records: their"),
          " fields are ", fields_of(records),
          found.empty() ? "" : cat(", which fit ", join(names, " and "))),
      cat(!likely.empty() ? cat("if these are prompts and their answers: ", likely, "; else ")
          : found.empty() ? nearly_named(records[0])
                          : "",
          "set dataset.format, one of ", join(found.empty() ? record_format_names() : names, ", "),
          !found.empty()   ? ""
          : likely.empty() ? ", and map the names of its fields, as in "
                             "dataset.columns='{prompt: question, completion: answer}'"
                           : ", and map the names of its fields"));
}

const Json* RecordReader::find(const Json& record, const char* name) const {
  return find_field(record, name, options_.columns);
}

const Json& RecordReader::field(const Json& record, const char* name) const {
  if (const Json* found = find(record, name)) return *found;
  throw RecordFault{missing_field(record, name, options_.columns),
                    missing_help(record, name, options_.columns,
                                 cat("the format ", finetune::name(format_),
                                     " needs it; dataset.columns maps it if it has another name"))};
}

std::string RecordReader::text_of(const Json& record, const char* name) const {
  const Json& value = field(record, name);
  if (!value.is_string())
    throw RecordFault{cat("has ", value.type_name(), " in the field '",
                          printable(name_in_file(name, options_.columns), 60), "'"),
                      "wanted a text; dataset.columns maps the field if it has another name"};
  return value.get<std::string>();
}

std::string RecordReader::text_or(const Json& record, const char* name) const {
  return find(record, name) ? text_of(record, name) : std::string();
}

std::string alpaca_prompt(const std::string& instruction, const std::string& input,
                          const std::string& form) {
  static constexpr const char* kWithInput =
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. "
      "Write a response that appropriately completes the request.\n\n"
      "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:";
  static constexpr const char* kWithout =
      "Below is an instruction that describes a task. "
      "Write a response that appropriately completes the request.\n\n"
      "### Instruction:\n{instruction}\n\n### Response:";
  std::string text = !form.empty() ? form : input.empty() ? kWithout : kWithInput;
  // Replaces the instruction last, so that "{input}" inside it is not replaced.
  const size_t at = text.find("{instruction}");
  if (at == std::string::npos) return replace_all(std::move(text), "{input}", input);
  constexpr size_t kSize = std::string_view("{instruction}").size();
  return replace_all(text.substr(0, at), "{input}", input) + instruction +
         replace_all(text.substr(at + kSize), "{input}", input);
}

Example RecordReader::alpaca_chat(const Json& record) const {
  Conversation out(options_);
  if (std::string system = text_or(record, "system"); !system.empty())
    out.add_text("system", system);
  if (const Json* history = find(record, "history"))
    for (const auto& pair : *history) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        throw RecordFault{"has a history that is not a list of pairs",
                          "wanted [[question, answer], …]"};
      out.add_text("user", pair[0].get<std::string>());
      out.add_text("assistant", pair[1].get<std::string>());
    }
  std::string question = text_of(record, "instruction"), input = text_or(record, "input");
  out.add_text("user", input.empty() ? question : cat(question, "\n", input));
  out.add_text("assistant", text_of(record, "output"));
  return std::move(out).finish();
}

Example RecordReader::alpaca(const Json& record) const {
  if (options_.chat_prompts) return alpaca_chat(record);
  const Json* history = find(record, "history");
  if (history && !history->empty())
    throw RecordFault{
        "has a history",
        "earlier turns need a chat template: set dataset.chat_template or dataset.template_path"};
  std::string system = text_or(record, "system");
  const std::string input = text_or(record, "input");
  if (!input.empty() && !options_.prompt.empty() &&
      options_.prompt.find("{input}") == std::string::npos)
    throw RecordFault{"has an input, and dataset.prompt has no {input}",
                      "add {input} to the prompt, or ignore the field with dataset.columns={input: "
                      "none}, a field that no record has"};
  std::string prompt = alpaca_prompt(text_of(record, "instruction"), input, options_.prompt);
  Example out;
  out.kind = Example::Kind::prompted;
  out.texts = {{system.empty() ? prompt : cat(system, "\n\n", prompt), false},
               {text_of(record, "output"), true}};
  return out;
}

Example RecordReader::chat(const Json& record, const char* list) const {
  const Json& messages = field(record, list);
  Conversation out(options_);
  out.add_system(record, messages.is_array() && !messages.empty() ? &messages.front() : nullptr);
  out.add_all(messages, list);
  if (out.empty())
    throw RecordFault{cat("has no messages in the field '",
                          printable(name_in_file(list, options_.columns), 60), "'"),
                      "give it messages, or leave such records out: dataset.on_bad=skip"};
  if (const Json* tools = find(record, "tools")) out.set_tools(*tools);
  return std::move(out).finish();
}

Example RecordReader::prompt_completion(const Json& record) const {
  const Json &prompt = field(record, "prompt"), &completion = field(record, "completion");
  refuse_alpaca_fields(record, options_.columns);
  if (completion.is_array() || completion.is_object()) {
    if (!prompt.is_string()) (void)read_messages(prompt, "prompt", options_);
    const AnswersOfPrompt from{.answers = {read_messages(completion, "completion", options_)},
                               .given = lists_of(record, {"prompt"}, options_),
                               .conversation = std::nullopt};
    return prompted_chat(record, find_prompt(record, from, options_), from.answers[0], options_);
  }
  if (completion.is_string() && !prompt.is_string())
    throw RecordFault{
        cat("has ", prompt.type_name(), " in the field '",
            printable(name_in_file("prompt", options_.columns), 60), "', and a text in the field '",
            printable(name_in_file("completion", options_.columns), 60), "'"),
        "wanted two texts, or two lists of messages: the answer as [{\"role\": "
        "\"assistant\", \"content\": …}]"};
  refuse_with_texts(record, options_.columns);
  Example out;
  out.kind = Example::Kind::prompted;
  out.texts = {{text_of(record, "prompt"), false}, {text_of(record, "completion"), true}};
  return out;
}

Example RecordReader::segments(const Json& record) const {
  const Json& list = field(record, "segments");
  if (!list.is_array())
    throw RecordFault{cat("has no list in 'segments' but ", list.type_name()),
                      "wanted [{\"text\": …, \"label\": true}, …]"};
  Example out;
  out.kind = Example::Kind::segments;
  for (const auto& item : list) {
    constexpr const char* kWanted =
        "wanted {\"text\": …, \"label\": true or false}; 1 and 0 mean the same";
    const Json* label = item.is_object() ? find(item, "label") : nullptr;
    if (!label) throw RecordFault{cat("has no label in segment ", out.texts.size()), kWanted};
    const bool trained = *label == true || *label == 1;
    if (!trained && *label != false && *label != 0)
      throw RecordFault{
          cat("has the label ",
              printable(label->dump(-1, ' ', false, Json::error_handler_t::replace), 40),
              " in segment ", out.texts.size()),
          kWanted};
    out.texts.push_back({text_of(item, "text"), trained});
  }
  return out;
}

Example RecordReader::tokens(const Json& ids, const Json* labels, const Json* mask) {
  if (!ids.is_array() || (labels && !labels->is_array()) || (mask && !mask->is_array()))
    throw RecordFault{cat("has token ids that are not a list: ", ids.type_name(), " in input_ids",
                          labels ? cat(", ", labels->type_name(), " in labels") : "",
                          mask ? cat(", ", mask->type_name(), " in attention_mask") : ""),
                      "wanted {\"input_ids\": […], \"labels\": […]}"};
  if ((labels && labels->size() != ids.size()) || (mask && mask->size() != ids.size()))
    throw RecordFault{
        cat("has ", ids.size(), " input_ids but ", labels ? labels->size() : ids.size(),
            " labels and ", mask ? mask->size() : ids.size(), " values of attention_mask"),
        "they must correspond one to one"};
  constexpr int64_t kIgnored = -100;
  Example out;
  out.kind = Example::Kind::tokens;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (mask && integer_of(*mask, i, "attention_mask") == 0) continue;  // padding
    const int64_t id = integer_of(ids, i, "input_ids"),
                  label = labels ? integer_of(*labels, i, "labels") : id;
    if (label != id && label != kIgnored)
      throw RecordFault{
          cat("labels[", i, "] is ", label, " where input_ids has ", id),
          "labels are the input_ids themselves, not shifted, or -100 where nothing is trained on"};
    out.ids.push_back(static_cast<int32_t>(id));
    out.trained.push_back(label == kIgnored ? 0 : 1);
  }
  return out;
}

Example RecordReader::read(const Json& record, const std::string& place) const {
  auto understood = [&]() -> Example {
    switch (format_) {
      case RecordFormat::alpaca:
        return alpaca(record);
      case RecordFormat::sharegpt:
        return chat(record, "conversations");
      case RecordFormat::openai:
        return chat(record, "messages");
      case RecordFormat::prompt_completion:
        return prompt_completion(record);
      case RecordFormat::segments:
        return segments(record);
      case RecordFormat::tokens:
        return tokens(field(record, "input_ids"), find(record, "labels"),
                      find(record, "attention_mask"));
      case RecordFormat::text:
        break;
    }
    Example out;
    out.kind = Example::Kind::prompted;
    out.texts = {{text_of(record, "text"), true}};
    return out;
  };
  Example out = understood();
  out.place = place;
  return out;
}

}  // namespace mtrain::finetune
