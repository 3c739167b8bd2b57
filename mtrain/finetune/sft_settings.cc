#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/finetune/sft_data.h"

namespace mtrain::finetune {
namespace {

std::map<std::string, std::string> names_of(const Node& tree, const char* setting) {
  std::map<std::string, std::string> out;
  if (tree.is_null()) return out;
  MT_USER_CHECK(tree.is_map(), ErrorClass::config, cat(setting, " is not a map: ", brief(tree)),
                "wanted {mtrain's name: name in the file}");
  for (const auto& entry : tree.entries()) {
    MT_USER_CHECK(entry.value.is_scalar() && !entry.value.is_null(), ErrorClass::config,
                  cat(setting, ".", entry.key, " is not a name: ", brief(entry.value)),
                  "wanted a text");
    out[entry.key] = entry.value.as_text();
  }
  return out;
}

constexpr std::initializer_list<const char*> kFields = {
    "instruction",       "input",         "output",         "system",
    "history",           "conversations", "from",           "value",
    "messages",          "role",          "content",        "tools",
    "reasoning_content", "reasoning",     "thinking",       "prompt",
    "completion",        "text",          "segments",       "label",
    "input_ids",         "labels",        "attention_mask", "chosen",
    "rejected",          "margin"};

/// Refuses names in braces that alpaca records do not have: they would be trained on as text.
void check_prompt(const std::string& prompt) {
  for (size_t at = prompt.find('{'); at != std::string::npos; at = prompt.find('{', at + 1)) {
    const size_t end =
        prompt.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", at + 1);
    if (end == std::string::npos || prompt[end] != '}' || end == at + 1) continue;
    const std::string name = prompt.substr(at + 1, end - at - 1);
    if (name == "instruction" || name == "input") continue;
    throw Error(ErrorClass::config,
                cat("dataset.prompt: {", printable(name, 60), "} is no field of alpaca records"),
                "there are {instruction} and {input}; dataset.columns maps fields that have other "
                "names in the file");
  }
  if (!prompt.empty() && prompt.find("{instruction}") == std::string::npos)
    throw Error(ErrorClass::config, "dataset.prompt has no {instruction}",
                "without it, the model does not see what each record asks for");
}

/// Refuses a role that no chat template knows: its messages would not be trained on. A role that
/// only the template of the recipe knows keeps its name: {narrator: narrator}.
void check_roles(const std::map<std::string, std::string>& roles) {
  const std::vector<std::string>& known = template_roles();
  for (const auto& [theirs, ours] : roles) {
    if (ours == theirs || std::find(known.begin(), known.end(), ours) != known.end()) continue;
    const auto near = nearest(ours, known, 1);
    throw Error(
        ErrorClass::config,
        cat("dataset.roles.", printable(theirs, 60), ": '", printable(ours, 60),
            "' is not a role that chat templates know"),
        near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean '", near[0], "'?"));
  }
}

}  // namespace

void RecordSettings::bind(Fields& f) {
  bind_files(f,
             "records for training: a file of JSON lines or of one JSON list; sft also takes the "
             "output prefix of `mtrain data pack`",
             "data/chats.jsonl");
  f("columns", columns,
    "field names of the file where they differ from the format's: {mtrain's name: name in the "
    "file}")
      .example("{prompt: question, completion: answer}");
  f("roles", roles,
    "role names of the file where they differ from system, user, assistant, tool: {name in the "
    "file: mtrain's name}")
      .example("{customer: user, agent: assistant}");
  std::vector<std::string> ready_made = chat::ready_made_names();
  ready_made.insert(ready_made.begin(), "");
  f("chat_template", chat_template,
    "name of a chat template that comes with mtrain; for other templates use template_path")
      .one_of(std::move(ready_made))
      .example("chatml");
  f("template_path", template_path,
    "chat template: a Jinja file, a tokenizer_config.json, or a folder with either; empty and no "
    "chat_template: the template next to the tokenizer's files")
      .input_path();
  f("template_name", template_name,
    "name of the template to use if tokenizer_config.json has several");
  f("date", date,
    "the date that templates see as today, fixed so that the same data gives the same tokens on "
    "every day")
      .example("2024-07-26");
  f("prompt", prompt,
    "format=alpaca without chat_template and template_path: the prompt text before an answer; "
    "empty: Stanford Alpaca's")
      .example("\"{instruction}\\n{input}\\n\"");
  f("parse_special", parse_special,
    "read the names of special tokens in texts, prompts and completions as these tokens, for "
    "records that have the markup of a chat template; the words of messages are always plain text");
  f("on_bad", on_bad,
    "action at a record that cannot be read or rendered; fail: stop, skip: leave it out")
      .one_of({"fail", "skip"});
  f("max_bad", max_bad, "on_bad=skip: maximum number of skipped records; more are an error")
      .min(0)
      .resume(ResumeClass::safe);
}

std::vector<std::string> RecordSettings::unused_templates(const std::string& what) const {
  std::vector<std::string> out;
  for (const auto& [name, value] :
       {std::pair{"chat_template", &chat_template}, {"template_path", &template_path}})
    if (!value->empty())
      out.push_back(cat("dataset.", name, " has no effect on ", what,
                        ": none of its records is a conversation, so the model does not learn the "
                        "format of the template\n  help: leave it out, or write the records as "
                        "messages"));
  if (template_name != RecordSettings{}.template_name && chat_template.empty() &&
      template_path.empty())
    out.push_back(cat("dataset.template_name has no effect on ", what,
                      ": none of its records is a conversation\n  help: leave it out"));
  return out;
}

FormatOptions RecordSettings::format_options() const {
  check_prompt(prompt);
  FormatOptions out{.columns = names_of(columns, "dataset.columns"),
                    .roles = names_of(roles, "dataset.roles"),
                    .chat_prompts = !template_path.empty() || !chat_template.empty(),
                    .prompt = prompt};
  check_roles(out.roles);
  for (const auto& [ours, theirs] : out.columns) {
    std::vector<std::string> known(kFields.begin(), kFields.end());
    if (std::find(known.begin(), known.end(), ours) != known.end()) continue;
    auto near = nearest(ours, known, 1);
    throw Error(
        ErrorClass::config,
        cat("dataset.columns: no format has a field '", printable(ours, 60), "'"),
        near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean '", near[0], "'?"));
  }
  return out;
}

EncoderOptions RecordSettings::encoder_options(const fs::path& base_directory) const {
  return {.chat_template = chat_template,
          .template_path = template_path,
          .template_name = template_name,
          .base_directory = base_directory,
          .date = date,
          .parse_special = parse_special};
}

void SftSettings::bind(Fields& f) {
  records.bind(f);
  std::vector<std::string> formats = record_format_names();
  formats.insert(formats.begin(), "auto");
  f("format", format, "format of the records; auto: detected from the fields of the first records")
      .one_of(std::move(formats));
  f("train_on", train_on,
    "text that contributes to the loss; assistant: all of the assistant's messages (or the "
    "completion), last: the assistant's last turn, all: all messages")
      .one_of({"assistant", "last", "all"});
  f("packing", packing,
    "pack several records into one sample; auto: use the packs of a packed file unchanged, and one "
    "record per sample for other files; none: one record per sample; offline: over the whole file, "
    "by first-fit decreasing")
      .one_of({"auto", "none", "offline"});
  f("packed_length", packed_length,
    "packing=offline: tokens of a packed sample; 0: model.seq_length")
      .min(0)
      .unit("tokens");
  f("too_long", too_long,
    "action at a record longer than a sample; truncate: remove its end, drop: leave it out, fail: "
    "stop")
      .one_of({"truncate", "drop", "fail"})
      .renamed_from({"truncation_strategy", "excess_length_strategy"});
}

}  // namespace mtrain::finetune
