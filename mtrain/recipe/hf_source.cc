#include "mtrain/recipe/hf_source.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {

std::optional<uint64_t> hf_shard_bytes(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) return std::nullopt;
  const std::string unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const uint64_t factor = unit == "GB"                  ? 1000000000
                          : unit == "MB"                ? 1000000
                          : unit == "KB"                ? 1000
                          : unit.empty() || unit == "B" ? 1
                                                        : 0;
  if (factor == 0 || number > UINT64_MAX / factor) return std::nullopt;
  return number * factor;
}

fs::path hf_source_folder(const Recipe& recipe) {
  const std::string& from = recipe.settings.model.init_from;
  if (from.empty()) return {};
  const fs::path folder = recipe.resolve(from);
  std::error_code error;
  const bool there = fs::is_regular_file(folder / "config.json", error) && !is_saved_run(folder);
  return there ? folder : fs::path();
}

std::string hf_source_config(const Recipe& recipe) {
  const fs::path folder = hf_source_folder(recipe);
  return folder.empty() ? std::string() : read_file(folder / "config.json");
}

std::optional<int32_t> hf_pad_token(const Recipe& recipe, std::optional<int32_t> own) {
  const auto config = nlohmann::json::parse(hf_source_config(recipe), nullptr, false);
  if (!config.is_object() || !config.contains("pad_token_id")) return own;
  const auto& pad = config["pad_token_id"];
  return pad.is_number_integer() ? std::optional(pad.get<int32_t>()) : own;  // null: not given
}

void check_hf_export(Recipe& recipe, const SchemaCatalog& catalog, const PluginHost& plugins) {
  const CheckpointSection& checkpoint = recipe.settings.checkpoint;
  if (const std::string& size = checkpoint.hf_shard_size; !hf_shard_bytes(size)) {
    const Node* node = recipe.config.root().find("checkpoint.hf_shard_size");
    recipe.report
        .error("hf-shard-size", "checkpoint.hf_shard_size", node ? node->loc() : Location{},
               cat("wanted a size such as 5GB or 500MB, got '", printable(size, 40), "'"))
        .fix(cat("checkpoint.hf_shard_size=", "5GB"));
  }
  if (checkpoint.hf.empty() || !recipe.report.ok()) return;
  const Schema* schema = catalog.component("model", recipe.settings.model.type);
  const Node* section = recipe.config.root().find("model");
  if (!schema || !section) return;
  try {
    hf_family_for_export(HfFamilies::read(plugins.folders()), "", hf_source_config(recipe),
                         HfModel(*section, *schema));
  } catch (const Error& fault) {
    const Node* node = recipe.config.root().find("checkpoint.hf");
    std::vector<std::string> lines = split(fault.message(), '\n');  // one for each setting
    Diagnostic& found = recipe.report.error("hf-export", "checkpoint.hf",
                                            node ? node->loc() : Location{}, lines.front());
    for (size_t i = 1; i < lines.size(); ++i) found.note(std::string(trim(lines[i])));
    found.fix(fault.hint());
  }
}

}  // namespace mtrain
