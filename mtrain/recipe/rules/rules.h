// The rules between settings that every recipe is checked against before anything is built. Each
// area's table is a file of this folder. Stateless.
#pragma once
#include <span>

#include "mtrain/config/container.h"
#include "mtrain/config/rules.h"
#include "mtrain/recipe/cluster.h"

namespace mtrain {

/// All rules and definitions.
MT_API const RuleBook& recipe_rules();
/// Checks a configuration against all rules. Ignores settings that are already faulty. `fixes`:
/// search for values that fix a violation. `saved`: the recipe was saved by a run, with all values
/// in one text, so warnings about settings without effect are only for those of the command line.
MT_API void check_rules(const ConfigContainer& config, const SchemaCatalog& catalog,
                        const Cluster& cluster, Report& report, bool fixes = true,
                        bool saved = false);
/// Checks some settings, without those of a whole recipe, against the rules that name no others.
/// `sections`: the settings by section, each with its `type` and its defaults.
MT_API void check_rules_within(const Node& sections, const SchemaCatalog& catalog, Report& report);
/// Values that rules can use in addition to settings: given_ranks, least_nproc, gpu.…, layout.…,
/// batch.….
MT_API std::map<std::string, ExpressionValue> rule_facts(const ConfigContainer& config,
                                                         const Cluster& cluster);
/// The path by which rules refer to the setting that defines a fact, "model.layers". A component
/// may define it under another path.
MT_API std::string usual_path(Fact fact);

std::span<const Rule> world_rules();
std::span<const Rule> model_rules();
std::span<const Rule> pipeline_rules();
std::span<const Rule> context_rules();
std::span<const Rule> moe_rules();
std::span<const Rule> precision_rules();
std::span<const Rule> optimizer_rules();
std::span<const Rule> memory_rules();
std::span<const Rule> running_rules();
/// Settings whose effect depends on other settings.
std::span<const Rule> unused_setting_rules();

}  // namespace mtrain
