// Whether adapters are added to the model for which they were trained.
#include <nlohmann/json.hpp>

#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {
namespace {

/// The name of a model in its path or its name on the hub: "Llama-3.2-1B" of
/// "meta-llama/Llama-3.2-1B" and of "models--meta-llama--Llama-3.2-1B/snapshots/4e20de3".
std::string model_name(const fs::path& path) {
  const fs::path plain = path.lexically_normal();
  for (const fs::path& part : plain)
    if (const std::string text = part.string(); text.starts_with("models--"))
      return text.substr(text.rfind("--") + 2);
  return (plain.has_filename() ? plain : plain.parent_path()).filename().string();
}

}  // namespace

void warn_of_other_base(const PeftAdapter& adapter, const std::string& from, const fs::path& base) {
  std::error_code ignored;
  if (adapter.base.empty() || fs::equivalent(adapter.base, base, ignored)) return;
  const std::string theirs = model_name(adapter.base);
  if (theirs == model_name(base)) return;
  const auto config = nlohmann::json::parse(HfDir(base).config_text(), nullptr, false);
  if (config.is_object() && config.contains("_name_or_path") &&
      config["_name_or_path"].is_string() &&
      model_name(config["_name_or_path"].get<std::string>()) == theirs)
    return;
  log_warn("the adapters of ", printable(from), " were trained on ", printable(adapter.base),
           " (base_model_name_or_path), and are added to ", printable(base.string()),
           "\n  help: give the model that they belong to, unless this is the same one under "
           "another name");
}

}  // namespace mtrain
