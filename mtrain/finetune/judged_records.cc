#include "mtrain/finetune/judged_records.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/answer_prompt.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/record_fields.h"

namespace mtrain::finetune {
namespace {

/// A format of sft, and the columns with which it reads the answers.
struct Reading {
  RecordFormat format;
  Columns changes;
};

/// Whether a conversation asks before it answers, and has an answer to train on.
bool asks_and_answers(const Example& chat) {
  const Json messages = Json::parse(chat.messages);
  const auto first = std::ranges::find_if(messages, [](const Json& message) {
    return message.at("role") != "system" && message.at("role") != "developer";
  });
  if (first == messages.end() || first->at("role") != "user") return false;
  for (size_t i = 0; i < messages.size(); ++i)
    if (chat.trains[i] && messages[i].at("role") == "assistant") return true;
  return false;
}

/// Whether every record is read, with a question and an answer where it has messages.
bool reads(const Reading& reading, std::span<const Json> records, FormatOptions options) {
  Columns columns = reading.changes;
  columns.insert(options.columns.begin(), options.columns.end());
  options.columns = std::move(columns);
  const RecordReader reader(reading.format, options);
  return std::ranges::all_of(records, [&](const Json& record) {
    try {
      const Example example = reader.read(record, "");
      return example.kind != Example::Kind::chat || asks_and_answers(example);
    } catch (const RecordFault&) {
      return false;
    }
  });
}

/// What may read the answers of a field, the most faithful first.
std::vector<Reading> readings(const Json& record, const std::string& answer,
                              const Columns& columns) {
  using enum RecordFormat;
  std::vector<Reading> out = {{openai, {{"messages", answer}}}};
  std::vector<Columns> prompts = {{}};
  for (const std::string& name : {likely_field(record, "prompt", columns),
                                  std::string("conversations"), std::string("messages")})
    if (!name.empty() && record.contains(name)) prompts.push_back({{"prompt", name}});
  for (const Columns& without :
       {Columns{}, Columns{{"system", kNoField}}, Columns{{"input", kNoField}},
        Columns{{"input", kNoField}, {"system", kNoField}}})
    for (Columns changes : prompts) {
      changes.insert(without.begin(), without.end());
      changes.emplace("completion", answer);
      out.push_back({prompt_completion, changes});
    }
  // Of answers that begin with their prompt.
  if (prompts.size() == 1 && !find_field(record, "prompt", columns))
    out.push_back({text, {{"text", answer}}});
  return out;
}

std::string setting_of(const Reading& reading, const Columns& columns) {
  Columns kept;  // those of the names that this format reads, too
  for (const auto& [ours, theirs] : columns)
    if (ours != "chosen" && ours != "rejected" && ours != "label") kept.emplace(ours, theirs);
  const std::string mapped = columns_setting(kept, reading.changes);
  const bool none = mapped == columns_setting({}, {});
  return cat("dataset.format=", name(reading.format), none ? "" : " ", none ? "" : mapped);
}

/// The setting that reads all these records; empty: there is none.
std::string setting_for(const std::vector<Reading>& all, std::span<const Json> records,
                        const FormatOptions& options) {
  const auto found =
      std::ranges::find_if(all, [&](const Reading& r) { return reads(r, records, options); });
  if (found == all.end()) return {};
  std::string out = setting_of(*found, options.columns);
  if (found->changes.contains("system")) out += ", without their system messages";
  return out;
}

std::string help_for_training(const std::string& which, const std::string& setting) {
  constexpr const char* kLook =
      "; to look at the records: mtrain data show with --dataset preference";
  return cat("; to train on ", which, ": ",
             setting.empty() ? "write records of a format of sft, as {\"messages\": [{\"role\": "
                               "\"user\", …}, {\"role\": \"assistant\", …}]}"
                             : setting,
             kLook);
}

}  // namespace

void refuse_judged(std::span<const Json> records, const FormatOptions& options,
                   const std::string& where) {
  const auto all_have = [&](const char* field) {
    return std::ranges::all_of(
        records, [&](const Json& r) { return find_field(r, field, options.columns) != nullptr; });
  };
  const bool pairs = all_have("chosen") && all_have("rejected");
  const bool judged = std::ranges::all_of(records, [&](const Json& r) {
    const Json* label = find_field(r, "label", options.columns);
    return label && label->is_boolean();
  });
  if (pairs) {
    const auto all = readings(records[0], name_in_file("chosen", options.columns), options.columns);
    throw Error(ErrorClass::data,
                cat(where, " has chosen and rejected answers, which dataset=sft does not read"),
                cat("to learn from the preferences: dataset=preference objective=dpo",
                    help_for_training("the chosen answers", setting_for(all, records, options))));
  }
  if (!judged) return;
  std::string answer = name_in_file("completion", options.columns);
  if (const std::string likely = likely_field(records[0], "completion", options.columns);
      !find_field(records[0], "completion", options.columns) && !likely.empty())
    answer = likely;
  std::vector<Reading> all = {{RecordFormat::openai, {}}, {RecordFormat::sharegpt, {}}};
  for (Reading& reading : readings(records[0], answer, options.columns))
    all.push_back(std::move(reading));
  throw Error(
      ErrorClass::data,
      cat(where, " has answers with a label, good or bad, which dataset=sft does not read"),
      cat("to learn from the labels: dataset=preference objective=kto",
          help_for_training("all answers, good and bad", setting_for(all, records, options))));
}

}  // namespace mtrain::finetune
