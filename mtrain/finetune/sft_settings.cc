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
                "wanted {our_name: name in the file}");
  for (const auto& entry : tree.entries()) {
    MT_USER_CHECK(entry.value.is_scalar() && !entry.value.is_null(), ErrorClass::config,
                  cat(setting, ".", entry.key, " is not a name: ", brief(entry.value)),
                  "wanted a text");
    out[entry.key] = entry.value.as_text();
  }
  return out;
}

constexpr std::initializer_list<const char*> kFields = {
    "instruction", "input",          "output",   "system",   "history", "conversations",
    "from",        "value",          "messages", "role",     "content", "tools",
    "prompt",      "completion",     "text",     "segments", "label",   "input_ids",
    "labels",      "attention_mask", "chosen",   "rejected"};

}  // namespace

void RecordSettings::bind(Fields& f) {
  f.resume(ResumeClass::data);
  f("path", path,
    "records: a file of JSON lines, or of one JSON list; of sft also the prefix that data pack "
    "wrote to")
      .example("data/chats.jsonl")
      .input_path();
  f("valid_path", valid_path, "the same for validation; then split is not applied").input_path();
  f("test_path", test_path, "the same for testing; then split is not applied").input_path();
  f("split", split, "shares of the records for train, valid and test, drawn at random")
      .example("95,5,0");
  f("columns", columns, "what the file calls the fields of its format: {ours: theirs}")
      .example("{prompt: question, completion: answer}");
  f("roles", roles, "what the file calls those who speak: {theirs: ours}")
      .example("{customer: user, agent: assistant}");
  std::vector<std::string> ready_made = chat::ready_made_names();
  ready_made.insert(ready_made.begin(), "");
  f("chat_template", chat_template,
    "a chat template that comes with mtrain, by name; one of your own: template_path")
      .one_of(std::move(ready_made))
      .example("chatml");
  f("template_path", template_path,
    "chat template: a file of Jinja, a tokenizer_config.json, or a folder with either; empty, "
    "without chat_template: what is next to "
    "the tokenizer's files")
      .input_path();
  f("template_name", template_name, "which of several templates of a tokenizer_config.json");
  f("date", date,
    "what templates take for today, so that the same data give the same tokens on any day")
      .example("2024-07-26");
  f("prompt", prompt,
    "alpaca without chat_template and template_path: the text before an answer; empty: Stanford's")
      .example("\"{instruction}\\n{input}\\n\"");
  f("on_bad", on_bad, "at a record that cannot be read or rendered").one_of({"fail", "skip"});
  f("max_bad", max_bad, "more such records than this are an error")
      .min(0)
      .resume(ResumeClass::safe);
}

FormatOptions RecordSettings::format_options() const {
  FormatOptions out{.columns = names_of(columns, "dataset.columns"),
                    .roles = names_of(roles, "dataset.roles"),
                    .chat_prompts = !template_path.empty() || !chat_template.empty(),
                    .prompt = prompt};
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
          .date = date};
}

void SftSettings::bind(Fields& f) {
  records.bind(f);
  std::vector<std::string> formats = record_format_names();
  formats.insert(formats.begin(), "auto");
  f("format", format, "how a record is read; auto: as the fields of the first ones say")
      .one_of(std::move(formats));
  f("train_on", train_on,
    "whose words are learnt: the assistant's, or completion's; those of its last turn; everybody's")
      .one_of({"assistant", "last", "all"});
  f("packing", packing,
    "several records in one sample: offline: over the whole file, first fit by falling length")
      .one_of({"none", "offline", "in_batch"})
      .needs("packing within a micro-batch", {"in_batch"});
  f("packed_length", packed_length, "offline: tokens of a packed sample; 0: model.seq_length")
      .min(0)
      .unit("tokens");
  f("too_long", too_long, "at a record longer than a sample: cut its end, leave it out, or stop")
      .one_of({"truncate", "drop", "fail"})
      .renamed_from({"truncation_strategy", "excess_length_strategy"});
}

}  // namespace mtrain::finetune
