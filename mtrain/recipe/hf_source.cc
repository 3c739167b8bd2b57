#include "mtrain/recipe/hf_source.h"

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {

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

void check_hf_export(Recipe& recipe, const SchemaCatalog& catalog, const PluginHost& plugins) {
  if (recipe.settings.checkpoint.hf.empty() || !recipe.report.ok()) return;
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
