#include "mtrain/recipe/saved_run.h"

#include "mtrain/checkpoint/store.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

/// The saved recipe without the optimizer, for using only the model: the plugin of the optimizer
/// need not be installed. Overrides are still checked.
Recipe recipe_without_optimizer(RecipeRequest request, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request, plugins);
  Report rest;
  for (const Diagnostic& d : recipe.report.diagnostics()) {
    const bool overridden = d.where && d.where.source->kind() == SourceKind::command_line;
    if (d.severity == Severity::error && d.path.starts_with("optimizer.") && !overridden) continue;
    Diagnostic& kept = d.severity == Severity::error
                           ? rest.error(d.code, d.path, d.where, d.message)
                           : rest.warning(d.code, d.path, d.where, d.message);
    kept = d;
  }
  rest.throw_if_errors();
  recipe.report = std::move(rest);
  return recipe;
}

/// Whether the folder or run from which training began is gone. Checkpoints with all weights do
/// not need it: their recipe has the settings of its model.
bool start_is_gone(const CheckpointMeta& meta) {
  const Node saved = parse_yaml(meta.config, "the run's recipe");
  const Node *from = saved.find("model.init_from"), *peft = saved.find("peft.type");
  const bool adapters = peft && peft->is(NodeKind::string) && peft->as_text() != "none";
  if (adapters || !from || !from->is(NodeKind::string) || from->as_text().empty()) return false;
  std::error_code ignored;
  return !fs::exists(fs::path(meta.directory) / from->as_text(), ignored);
}

}  // namespace

SavedRun open_saved_run(const fs::path& given, std::vector<OverrideText> overrides,
                        const PluginHost& plugins) {
  auto [folder, step] = find_saved_step(given);
  CheckpointStore store(folder);
  CheckpointMeta meta = meta_from_json(store.meta(step), store.step_folder(step).string());
  RecipeRequest request{.recipe = cat(store.step_folder(step).string(), " (its recipe)"),
                        .text = meta.config,
                        .weights = !start_is_gone(meta),
                        .resolved = true,
                        .directory = meta.directory,
                        .overrides = std::move(overrides)};
  const bool changed = !request.overrides.empty();
  SavedRun run{recipe_without_optimizer(std::move(request), plugins), folder, step, {}};
  if (changed) check_used_model(run.recipe, plugins, meta, store.step_folder(step).string());
  run.recipe.name = meta.name;
  run.recipe.settings.peft.init_from.clear();  // the checkpoint has the adapters
  run.tokenizer = meta.tokenizer;
  run.base = meta.base;
  run.reference = meta.reference;
  if (meta.saved != "{}")
    run.config = saved_config_from_json(meta.saved, store.step_folder(step).string());
  return run;
}

}  // namespace mtrain
