#include "mtrain/train/resume.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/diff.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/train/data_changes.h"
#include "mtrain/train/saved_config.h"

namespace mtrain {
namespace {

// The changes of one class, as lines of a report.
struct Changes {
  std::vector<std::string> impossible, changes_result;
};

ResumeClass resume_class(const SchemaCatalog& catalog, const std::string& path,
                         const ConfigContainer& config) {
  auto settings = catalog.settings_at(path, config.type_of(path.substr(0, path.find('.'))));
  return settings.empty() ? ResumeClass::changes_result : settings.front()->resume;
}

std::string describe(const Difference& d, const std::map<std::string, std::string>& origins) {
  std::string before = d.before ? brief(*d.before) : "absent";
  auto who = origins.find(d.path);
  return cat(d.path, ": ", before, " -> ", brief(*d.after), "   (",
             d.after->loc() ? d.after->loc().text() : "nowhere",
             who == origins.end() ? "" : "; before: " + who->second, ")");
}

Changes compare(const Recipe& now, const SchemaCatalog& catalog, const Recipe& before,
                const std::map<std::string, std::string>& origins) {
  Changes out;
  for (const auto& d : differences(before.config.root(), now.config.root())) {
    // A setting that is no more cannot have been changed by the user.
    if (!d.after || (!d.before && !d.after->is_scalar())) continue;
    if (same_input(before.inputs, now.inputs, d.path)) continue;
    ResumeClass resume = d.before ? resume_class(catalog, d.path, now.config) : ResumeClass::changes_result;
    if (resume == ResumeClass::impossible) out.impossible.push_back(describe(d, origins));
    if (resume == ResumeClass::changes_result) out.changes_result.push_back(describe(d, origins));
  }
  return out;
}

[[noreturn]] void refuse_arithmetic(const std::string& checkpoint, const std::string& before, const std::string& here) {
  std::string fix = "continue on such a device";
  if (before.starts_with(kCpuArithmetic)) {
    const std::string level = before.substr(kCpuArithmetic.size());
    fix = cpu_has_level(level) ? cat("set MTRAIN_ISA=", level, " in the environment") : cat("continue on a processor that has level ", level);
  }
  throw Error(ErrorClass::checkpoint,
              cat(checkpoint, " was computed by \"", before, "\", and this is \"", here,
                  "\", which gives other bits: run.deterministic=true does not allow that"),
              cat(fix, ", or set run.deterministic=false"));
}

std::string lines(const std::vector<std::string>& items) {
  return "\n  " + join(items, "\n  ");
}

}  // namespace

void check_resume(const Recipe& recipe, const PluginHost& plugins, const CheckpointMeta& before,
                  const CheckpointMeta& now, const std::string& checkpoint, bool quiet) {
  std::string where = cat(checkpoint, " (its recipe)");
  Recipe old = recipe_from_text(before.config, where, before.directory, {}, plugins);
  SavedConfig saved;
  if (before.saved != "{}") saved = saved_config_from_json(before.saved, where);
  Changes changes = compare(recipe, schema_catalog(plugins), old, origins_of(saved));
  if (before.tokenizer != now.tokenizer)
    changes.impossible.push_back(cat("tokenizer: ", before.tokenizer, " -> ", now.tokenizer));
  for (const std::string& change : data_changes(before.data, now.data)) changes.impossible.push_back(cat("data: ", change));
  const std::string arithmetic = identity_of(saved).arithmetic, here = identity_of(saved_config_from_json(now.saved, "this run")).arithmetic;
  // The checkpoint has rank 0's arithmetic, which other machines of the job need not share.
  if (!quiet && !arithmetic.empty() && arithmetic != here) {
    if (recipe.settings.run.deterministic) refuse_arithmetic(checkpoint, arithmetic, here);
    changes.changes_result.push_back(cat("arithmetic: ", arithmetic, " -> ", here, "   (sums are added in another order)"));
  }
  if (!changes.impossible.empty())
    throw Error(ErrorClass::checkpoint, cat(checkpoint, " cannot be continued by this recipe:", lines(changes.impossible)),
                cat("undo ", changes.impossible.size() == 1 ? "this change" : "these changes", ", or start a new run: run.dir=ANOTHER/FOLDER"));
  if (quiet) return;
  if (!changes.changes_result.empty())
    log_warn("resuming with other settings, which changes the result:", lines(changes.changes_result));
  if (before.saved != "{}" && now.saved != "{}")
    for (const std::string& change : changed_programs(saved, saved_config_from_json(now.saved, where))) log_warn("resuming with ", change);
  if (before.state.seed != now.state.seed)
    log_warn("resuming with another seed: data order and dropout change");
}

bool continues_run(const Recipe& recipe) {
  std::error_code ignored;
  const fs::path folder = recipe.checkpoint_directory();
  if (!fs::is_directory(folder, ignored)) return false;
  auto all = CheckpointStore(folder).list();
  return std::any_of(all.begin(), all.end(), [](const CheckpointInfo& info) { return info.problem.empty(); });
}

std::vector<std::string> changes_of_run(const Recipe& recipe, const PluginHost& plugins, const std::vector<std::string>& exact) {
  if (!continues_run(recipe)) return {};
  const fs::path folder = recipe.checkpoint_directory();
  const SavedConfig saved = read_saved_config(folder);
  const Recipe before = recipe_from_text(saved.resolved, cat(folder.string(), " (its recipe)"), identity_of(saved).directory, {}, plugins);
  const SchemaCatalog& catalog = schema_catalog(plugins);
  const auto origins = origins_of(saved);
  auto is_exact = [&](const std::string& path) {
    return std::any_of(exact.begin(), exact.end(), [&](const std::string& key) { return path == key || path.starts_with(key + "."); });
  };
  std::vector<std::string> out;
  for (const auto& d : differences(before.config.root(), recipe.config.root())) {
    if (!d.after || (!d.before && !d.after->is_scalar())) continue;
    if (same_input(before.inputs, recipe.inputs, d.path)) continue;
    const ResumeClass resume = d.before ? resume_class(catalog, d.path, recipe.config) : ResumeClass::changes_result;
    if (resume != ResumeClass::safe || is_exact(d.path)) out.push_back(describe(d, origins));
  }
  return out;
}

}  // namespace mtrain
