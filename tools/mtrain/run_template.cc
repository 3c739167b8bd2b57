#include "run_template.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/file.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/finetune/preference.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {
namespace {

/// The template that the settings name, as it is now.
std::optional<chat::TemplateFile> named_template(const Recipe& recipe) {
  const auto records = record_settings(recipe);
  if (!records) return std::nullopt;
  if (!records->chat_template.empty()) return chat::ready_made(records->chat_template);
  if (records->template_path.empty()) return std::nullopt;
  return chat::read_template(recipe.resolve(records->template_path), records->template_name);
}

/// The names of special tokens that a file next to the template gives; none where it is gone.
std::map<std::string, std::string> special_names(const Recipe& recipe, const Tokenizer& tokenizer) {
  const auto records = record_settings(recipe);
  const bool own = records && !records->template_path.empty();
  try {
    if (own || !tokenizer.folder().empty())
      return chat::read_template(own ? recipe.resolve(records->template_path) : tokenizer.folder(),
                                 records ? records->template_name : "default")
          .special;
  } catch (const Error&) {  // the tokenizer has names of its own
  }
  return {};
}

/// Also true for a tokenizer_config.json that cannot be parsed, which its reader then reports.
bool has_template(const fs::path& folder) {
  if (fs::exists(folder / "chat_template.jinja")) return true;
  const fs::path settings = folder / "tokenizer_config.json";
  if (!fs::exists(settings)) return false;
  const auto json = nlohmann::json::parse(read_file(settings), nullptr, false);
  return !json.is_object() || json.contains("chat_template");
}

}  // namespace

std::tm local_time() {
  std::time_t now = std::time(nullptr);
  std::tm out{};
  ::localtime_r(&now, &out);
  return out;
}

std::optional<finetune::RecordSettings> record_settings(const Recipe& recipe) {
  const std::string& type = recipe.settings.dataset.type;
  if (type == "sft") return read_config<finetune::SftSettings>(recipe.component("dataset")).records;
  if (type == "preference")
    return read_config<finetune::PreferenceSettings>(recipe.component("dataset")).records;
  return std::nullopt;
}

std::optional<chat::TemplateFile> template_of_adapters(const fs::path& folder, const SavedRun& run,
                                                       const Tokenizer& tokenizer) {
  if (folder.empty() || !has_template(folder)) return std::nullopt;
  chat::TemplateFile out = chat::read_template(folder);
  if (out.special.empty()) out.special = special_names(run.recipe, tokenizer);
  return out;
}

std::optional<chat::TemplateFile> template_of_run(const SavedRun& run, const Tokenizer& tokenizer) {
  const auto records = record_settings(run.recipe);
  const std::string text = identity_of(run.config).chat_template;
  const bool ready_made = records && !records->chat_template.empty();
  if (text.empty() || ready_made) return named_template(run.recipe);
  return chat::TemplateFile{.name = "the run's chat template",
                            .source = text,
                            .special = special_names(run.recipe, tokenizer),
                            .text_marks = {}};
}

HfRunOptions export_options(const SavedRun& run) {
  const SavedIdentity recorded = identity_of(run.config);
  HfRunOptions out{.dtype = {},
                   .family = {},
                   .chat_template = recorded.chat_template,
                   .source_config = recorded.source_config,
                   .tokenizer = run.tokenizer};
  if (!out.chat_template.empty()) return out;
  try {
    if (const auto own = named_template(run.recipe)) out.chat_template = own->source;
  } catch (const Error& error) {
    log_warn("the folder does not get the chat template with which the run was trained: ",
             error.message());
  }
  return out;
}

}  // namespace mtrain
