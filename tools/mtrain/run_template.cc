#include "run_template.h"

#include "mtrain/base/log.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/finetune/sft_data.h"

namespace mtrain {

std::tm local_time() {
  std::time_t now = std::time(nullptr);
  std::tm out{};
  ::localtime_r(&now, &out);
  return out;
}

std::optional<chat::TemplateFile> template_of_run(const Recipe& recipe) {
  if (recipe.settings.dataset.type != "sft") return std::nullopt;
  const auto records = read_config<finetune::SftSettings>(recipe.component("dataset")).records;
  if (!records.chat_template.empty()) return chat::ready_made(records.chat_template);
  if (records.template_path.empty()) return std::nullopt;
  return chat::read_template(recipe.resolve(records.template_path), records.template_name);
}

std::string chat_template_text(const Recipe& recipe) {
  try {
    const auto own = template_of_run(recipe);
    return own ? own->source : "";
  } catch (const Error& error) {
    log_warn("the folder gets no chat template: ", error.message());
    return "";
  }
}

}  // namespace mtrain
