// Every rule between settings, broken and kept. Each row changes a sound recipe: the first change
// must break the rule, the second must not.
#include "mtrain/recipe/rules/rules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/recipe.h"
#include "recipes/rule_cases.h"
#include "unit/data/data_files.h"

using namespace mtrain;

namespace {

const char* base_recipe(std::string_view model) {
  if (model == "gpt2")
    return "model: {type: gpt2, layers: 12, hidden_size: 768, heads: 12, ffn_hidden_size: 3072, "
           "seq_length: "
           "1024}\n"
           "dataset: {type: gpt, path: x}\ntrain: {steps: 100}\n";
  if (model == "bert")
    return "model: {type: bert, layers: 12, hidden_size: 768, heads: 12, ffn_hidden_size: 3072, "
           "seq_length: "
           "512}\n"
           "dataset: {type: bert, path: x}\ntrain: {steps: 100}\n";
  if (model == "t5")
    return "model: {type: t5, layers: 12, encoder_layers: 12, hidden_size: 768, heads: 12, "
           "ffn_hidden_size: 2048, decoder_seq_length: 114, seq_length: 626}\n"
           "dataset: {type: t5_seq2seq, path: x, decoder_seq_length: 114}\ntrain: {steps: 100}\n";
  if (model == "moe")
    return "model: {type: moe, layers: 32, hidden_size: 4096, heads: 32, kv_heads: 8, "
           "ffn_hidden_size: "
           "14336, "
           "seq_length: 4096, moe: {experts: 8, top_k: 2}}\n"
           "dataset: {type: gpt, path: x}\ntrain: {steps: 100}\n";
  return "model: {type: llama, layers: 32, hidden_size: 4096, heads: 32, kv_heads: 8, "
         "ffn_hidden_size: "
         "14336, "
         "seq_length: 4096}\n"
         "dataset: {type: gpt, path: x}\ntrain: {steps: 100}\n";
}

std::vector<RuleCase> rule_cases() {
  std::vector<RuleCase> all;
  for (auto part : {world_cases(), part_cases(), setting_cases(), unused_cases()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

const PluginHost& rule_plugins() {
  static const PluginHost kHost = testing::built_plugins();
  return kHost;
}

/// The report of a recipe after changes, "key=value" separated by blanks; "world=N" and "gpu=NAME"
/// describe the cluster.
Report report_of(std::string_view model, const std::string& changes) {
  RecipeRequest request{.recipe = "base.yaml",
                        .text = base_recipe(model),
                        .weights = false,
                        .directory = {},
                        .overrides = {},
                        .cluster = {}};
  for (const auto& change : split(changes, ' ')) {
    if (change.starts_with("world="))
      request.cluster.world_size = std::stoll(change.substr(6));
    else if (change.starts_with("gpu="))
      request.cluster.gpu = change.substr(4);
    else if (!change.empty())
      request.overrides.push_back({change, static_cast<int>(request.overrides.size()) + 2});
  }
  return read_recipe(request, rule_plugins()).report;
}

const Diagnostic* violation(const Report& report, const std::string& id) {
  for (const auto& d : report.diagnostics())
    if (d.code == "rule " + id) return &d;
  return nullptr;
}

}  // namespace

TEST_CASE("every rule is broken by one recipe and kept by another") {
  for (const auto& row : rule_cases()) {
    CAPTURE(std::string(row.id));
    CAPTURE(std::string(row.broken));
    CAPTURE(std::string(row.kept));
    Report broken = report_of(row.model, row.broken), kept = report_of(row.model, row.kept);
    CAPTURE(broken.text());
    CAPTURE(kept.text());
    const Diagnostic* found = violation(broken, row.id);
    REQUIRE(found != nullptr);
    CHECK_FALSE(found->message.empty());
    CHECK(found->message.find('{') == std::string::npos);
    CHECK(found->message.find('?') == std::string::npos);
    CHECK(found->where);
    CHECK(violation(kept, row.id) == nullptr);
    for (const Report* report : {&broken, &kept})
      for (const auto& d : report->diagnostics())
        CHECK_MESSAGE((d.code.starts_with("rule ") || d.code == "not-built"), d.code, ": ", d.path,
                      ": ", d.message);
    // Six lines at most, in the form people see.
    std::string shown = render(*found);
    CHECK(std::count(shown.begin(), shown.end(), '\n') < 6);
  }
}

TEST_CASE("no rule is without a case, no case without a rule, no id is used twice") {
  std::set<std::string> rules, cases;
  for (const auto& rule : recipe_rules().rules())
    CHECK_MESSAGE(rules.insert(rule.id).second, rule.id);
  for (const auto& row : rule_cases()) cases.insert(row.id);
  for (const auto& id : rules) CHECK_MESSAGE(cases.contains(id), "no case for ", id);
  for (const auto& id : cases) CHECK_MESSAGE(rules.contains(id), "no rule ", id);
  MESSAGE(rules.size(), " rules");
}

TEST_CASE("rules name only what exists") {
  SchemaCatalog catalog = schema_catalog(rule_plugins());
  std::set<std::string> known = {"given_ranks",
                                 "least_nproc",
                                 "gpu.name",
                                 "gpu.compute_capability",
                                 "gpu.per_domain",
                                 "layout.fault",
                                 "layout.stages",
                                 "layout.layers",
                                 "layout.mtp_layers",
                                 "layout.mtp_stage",
                                 "learned.by",
                                 "learned.objective",
                                 "split.fault",
                                 "batch.fault",
                                 "batch.largest",
                                 "batch.smallest",
                                 "batch.divisor",
                                 "batch.last_from",
                                 "device_communicators",
                                 "norms.kept",
                                 "phases.given",
                                 "phases.fault",
                                 "stages.given",
                                 "samples.objective",
                                 "predicted.objective",
                                 "learned.scores",
                                 "learned.score_pairs",
                                 "learned.token_scores"};
  for (const auto& definition : recipe_rules().definitions()) known.insert(definition.name);
  for (const auto& section : catalog.sections()) {
    for (const auto& field : section.fields) known.insert(section.name + "." + field.path);
    std::string kind = catalog.kind_of(section.name);
    if (kind.empty()) continue;
    for (const auto& name : catalog.components(kind))
      for (const auto& field : catalog.component(kind, name)->fields)
        known.insert(section.name + "." + field.path);
  }
  auto check_names = [&](const char* where, std::string_view expression) {
    for (const auto& name : names_in(expression))
      CHECK_MESSAGE(known.contains(name), where, ": ", name);
  };
  for (const auto& definition : recipe_rules().definitions())
    check_names(definition.name, definition.expression);
  for (const auto& rule : recipe_rules().rules()) {
    CHECK_MESSAGE(known.contains(rule.path), rule.id, ": ", rule.path);
    check_names(rule.id, rule.when);
    check_names(rule.id, rule.must);
    CHECK_MESSAGE(std::string_view(rule.why).find('{') == std::string_view::npos, rule.id,
                  ": a reason is shown as it is");
    std::string_view says = rule.says;
    for (size_t open = says.find('{'); open != std::string_view::npos;
         open = says.find('{', open + 1))
      check_names(rule.id, says.substr(open + 1, says.find('}', open) - open - 1));
    for (const auto& part : split(rule.fix, ';')) {
      std::string_view fix = trim(part);
      size_t equals = fix.find('=');
      CHECK_MESSAGE(known.contains(std::string(fix.substr(0, equals))), rule.id, ": fix ", fix);
      if (equals != std::string_view::npos) check_names(rule.id, fix.substr(equals + 1));
    }
  }
}

TEST_CASE("what a violation offers fixes it") {
  int offers = 0;
  for (const auto& row : rule_cases()) {
    Report broken = report_of(row.model, row.broken);
    const Diagnostic* found = violation(broken, row.id);
    REQUIRE(found != nullptr);
    // "a=1, 2 or 4, or b=3": the first value of each.
    std::string help = found->help;
    for (size_t at = 0; at < help.size();) {
      size_t next = std::min(help.find(", or ", at), help.size());
      std::string offer = help.substr(at, next - at);
      at = next + 5;
      if (offer.find('=') == std::string::npos) continue;
      size_t end = offer.find('[') == std::string::npos
                       ? std::min(offer.find(", "), offer.find(" or "))
                       : offer.size();
      std::string change = offer.substr(0, end);
      change.erase(std::remove(change.begin(), change.end(), ' '), change.end());
      CAPTURE(std::string(row.id));
      CAPTURE(change);
      Report fixed = report_of(row.model, row.broken + std::string(" ") + change);
      CAPTURE(fixed.text());
      CHECK(violation(fixed, row.id) == nullptr);
      ++offers;
    }
  }
  MESSAGE(offers, " offers tried");
}

TEST_CASE("all violated rules of a recipe are reported at once") {
  std::string all;
  for (const auto& row : rule_cases())
    if (std::string_view(row.model) == "llama") all += row.broken + std::string(" ");
  Report report = report_of("llama", all);
  CHECK(report.errors() > 30);
}

TEST_CASE("a setting without effect is a warning only where the user wrote it") {
  const testing::ScratchFolder folder;
  fs::create_directory(folder / "mixed_precision");
  testing::put(folder / "mixed_precision/scaled.yaml", "fp8_margin: 1\n");
  testing::put(folder / "mixed_precision/plain.yaml", "fp8: none\n");
  const std::string group = "defaults: [{mixed_precision: scaled}, _self_]\n",
                    own = "mixed_precision: {fp8_margin: 1}\n";
  auto warns = [&](const std::string& head, std::vector<OverrideText> overrides, bool saved) {
    RecipeRequest request{.recipe = (folder / "r.yaml").string(),
                          .text = {},
                          .directory = {},
                          .overrides = std::move(overrides),
                          .cluster = {}};
    testing::put(folder / "r.yaml", head + base_recipe("llama"));
    if (saved) request.text = head + base_recipe("llama");
    request.resolved = saved;
    const Recipe recipe = read_recipe(request, rule_plugins());
    CAPTURE(recipe.report.text());
    CHECK(recipe.report.ok());
    CHECK(recipe.config.root().at("mixed_precision.fp8_margin").as_int() == 1);
    return violation(recipe.report, "fp8-margin-unused") != nullptr;
  };
  const OverrideText margin{"mixed_precision.fp8_margin=1", 3}, none{"mixed_precision.fp8=none", 4};
  CHECK(warns(own, {}, false));
  CHECK(warns("", {margin}, false));
  CHECK(warns(own, {margin, none}, false));
  CHECK_FALSE(warns(own, {none}, false));  // the command line switches the feature off
  // So does an option that the command line chooses, but not one of the recipe.
  const OverrideText plain{"mixed_precision=plain", 4}, added{"+mixed_precision=plain", 4};
  CHECK(warns("defaults: [{mixed_precision: plain}, _self_]\n" + own, {}, false));
  CHECK_FALSE(warns(group + own, {plain}, false));
  CHECK(warns(group + own, {plain, margin}, false));
  CHECK_FALSE(warns(own, {added}, false));
  CHECK_FALSE(warns(group, {}, false));  // the group is for other recipes as well
  CHECK(warns(group, {margin}, false));
  CHECK_FALSE(warns(own, {}, true));  // a saved recipe contains the values of all its files
  CHECK(warns(own, {margin}, true));
}
