#include "mtrain/recipe/rules/rules.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/optim/objective.h"
#include "mtrain/pipeline/layout.h"
#include "mtrain/recipe/batch_schedule.h"
#include "mtrain/recipe/settings/optimization.h"

namespace mtrain {
namespace {

const std::vector<Definition>& definitions() {
  static const std::vector<Definition> kDefinitions = {
      {"kv_heads", "model.kv_heads if model.kv_heads > 0 else model.heads"},
      {"model_ranks", "dist.tp * dist.pp * dist.cp"},
      {"expert_ranks", "dist.etp * dist.ep * dist.pp"},
      // The number of ranks from --world-size or a launcher, else dist.nproc if it determines the
      // number; absent if it is not known.
      {"world_size", "given_ranks ?? max(dist.nproc, least_nproc)"},
      {"dp", "max(1, world_size // model_ranks)"},
      {"known_dp",
       "max(1, (world_size ?? 1) // model_ranks)"},  // 1 if the number of ranks is not known
      {"one_batch",
       "train.global_batch_size if train.global_batch_size > 0 else train.micro_batch_size"},
      {"global_batch", "batch.largest ?? one_batch"},
      {"smallest_batch", "batch.smallest ?? one_batch"},
      {"micro_batches", "global_batch // (train.micro_batch_size * known_dp)"},
      {"eval_micro",
       "validation.micro_batch_size if validation.micro_batch_size > 0 else "
       "train.micro_batch_size"},
      {"eval_global",
       "validation.global_batch_size if validation.global_batch_size > 0 else global_batch"},
      {"group_size", "dist.microbatch_group_size if dist.microbatch_group_size > 0 else dist.pp"},
      {"chunks", "dist.pp * dist.vp"},
      {"split_layers",
       "model.layers + (1 if dist.account_for_embedding else 0) + (1 if dist.account_for_loss else "
       "0)"},
      {"end_stages",
       "(1 if dist.first_stage_layers > 0 else 0) + (1 if dist.last_stage_layers > 0 else 0)"},
      {"middle_layers", "model.layers - dist.first_stage_layers - dist.last_stage_layers"},
      {"middle_stages", "dist.pp - end_stages"},
      {"decays_by_end", "scheduler.type in ['linear', 'cosine', 'polynomial', 'wsd']"},
      {"decay_end", "scheduler.decay_steps if scheduler.decay_steps > 0 else train.steps"},
      {"experts", "model.moe.experts ?? 0"},
      {"expert_ffn",
       "model.moe.ffn_hidden_size if model.moe.ffn_hidden_size > 0 else model.ffn_hidden_size"},
      {"fp8", "mixed_precision.fp8 != 'none'"},
      {"fp4", "mixed_precision.fp4 != 'none'"},
      // The size of the scaling groups of FP8 and FP4 hardware along a sum.
      {"quantized_group", "32 if fp8 and mixed_precision.fp8_recipe == 'mxfp8' else 16"},
      {"head_width",
       "model.head_dim if (model.head_dim ?? 0) > 0 else model.hidden_size // model.heads"},
      {"graphs", "cuda_graph.type != 'none'"},
  };
  return kDefinitions;
}

/// The facts of train.batch_schedule, if it is set: its fault, or its batch sizes.
void batch_facts(const ConfigContainer& config, std::map<std::string, ExpressionValue>& facts) {
  const Node* list = config.root().find("train.batch_schedule");
  if (!list || !list->is(NodeKind::list) || list->size() == 0) return;
  std::vector<std::string> items;
  for (const Node& item : list->items()) items.push_back(item.as_text());
  std::string fault;
  const BatchSchedule batches = BatchSchedule::parse(items, fault);
  facts["batch.fault"] = fault;
  if (!fault.empty()) return;
  facts["batch.largest"] = batches.largest();
  facts["batch.smallest"] = batches.smallest();
  facts["batch.divisor"] = batches.common_divisor();
  facts["batch.last_from"] = batches.periods().back().steps_before;
}

void layout_facts(const ConfigContainer& config, std::map<std::string, ExpressionValue>& facts) {
  const Node* text = config.root().find("dist.layout");
  if (!text || text->as_text().empty()) return;
  PipelineLayout layout = parse_pipeline_layout(text->as_text());
  facts["layout.fault"] = layout.fault;
  if (!layout.fault.empty()) return;
  facts["layout.stages"] = static_cast<int64_t>(layout.stages.size());
  facts["layout.layers"] = layout.count('t');
  facts["layout.mtp_layers"] = layout.count('m');
  int64_t mtp_stage = -1;
  for (size_t i = 0; i < layout.stages.size(); ++i)
    if (mtp_stage < 0 && layout.stages[i].find('m') != std::string::npos)
      mtp_stage = static_cast<int64_t>(i);  // the first one
  facts["layout.mtp_stage"] = mtp_stage;
}

/// What the model predicts, what training learns, for which an objective over answers takes the
/// place of the model's, and what the dataset's samples are for. Those that are not known, or fit
/// any, are absent.
void objective_facts(const ConfigContainer& config, const SchemaCatalog& catalog,
                     std::map<std::string, ExpressionValue>& facts) {
  const auto of = [&](const char* section) -> std::string {
    const Schema* component = catalog.component(catalog.kind_of(section), config.type_of(section));
    if (!component) return std::string(Fields::kAnyObjective);
    return component->objective.empty() ? std::string(Dataset::kNextToken) : component->objective;
  };
  const std::string objective = config.type_of("objective"), model = of("model"),
                    samples = of("dataset");
  const bool answers = !objective.empty() && objective != ObjectiveSection::kTokens &&
                       objective != ObjectiveSection::kDistillation;
  const Schema* chosen = answers ? catalog.component("objective", objective) : nullptr;
  const std::string declared = chosen ? chosen->objective : "";
  const bool pairs = declared == Objective::kScoredAnswers;
  const bool tokens = declared == Dataset::kTokenClasses;
  facts["learned.scores"] = pairs || tokens || declared == Dataset::kClasses;
  facts["learned.token_scores"] = tokens;
  facts["learned.score_pairs"] = pairs;
  const std::string learned = !answers                    ? model
                              : pairs || declared.empty() ? std::string(Dataset::kPreferences)
                                                          : declared;
  if (model != Fields::kAnyObjective) facts["predicted.objective"] = model;
  if (learned == Fields::kAnyObjective || samples == Fields::kAnyObjective) return;
  facts["learned.by"] = answers ? objective : config.type_of("model");
  facts["learned.objective"] = learned;
  facts["samples.objective"] = samples;
}

/// True for a model that uses the results of its norms again.
bool reuses_norm_outputs(const ConfigContainer& config, const SchemaCatalog& catalog) {
  const Schema* model = catalog.component(catalog.kind_of("model"), config.type_of("model"));
  return model && model->reuses_norm_outputs;
}

/// The names of communicators for device memory, built or planned, for rules about dist.comm.
ExpressionList device_communicators(const SchemaCatalog& catalog) {
  ExpressionList names;
  const std::string kind(Communicator::kKind);
  for (const std::string& name : catalog.components(kind))
    if (catalog.component(kind, name)->device_memory) names.emplace_back(name);
  return names;
}

struct UsualPath {
  Fact fact;
  const char* path;
};
constexpr UsualPath kUsualPaths[] = {
    {Fact::layers, "model.layers"},       {Fact::hidden_size, "model.hidden_size"},
    {Fact::heads, "model.heads"},         {Fact::kv_heads, "model.kv_heads"},
    {Fact::head_dim, "model.head_dim"},   {Fact::ffn_hidden_size, "model.ffn_hidden_size"},
    {Fact::experts, "model.moe.experts"}, {Fact::mtp_layers, "model.mtp.layers"},
};

std::map<std::string, std::string> renamed_settings(const ConfigContainer& config) {
  std::map<std::string, std::string> out;
  for (const UsualPath& usual : kUsualPaths)
    if (std::string own = config.setting_of(usual.fact); !own.empty() && own != usual.path)
      out.emplace(usual.path, std::move(own));
  return out;
}

bool are_shares(std::string_view text, std::string& fault) {
  try {
    split_ranges(text, 0);
    return true;
  } catch (const Error& error) {
    fault = error.message();
    return false;
  }
}

/// The schema of a setting of the component that its section names; null: none.
const FieldSpec* field_at(const Node& root, const std::string& path, const SchemaCatalog& catalog) {
  const Node* type = root.find(path.substr(0, path.find('.')) + ".type");
  const bool named = type && type->is_scalar() && !type->is_null();
  auto found = catalog.settings_at(path, named ? type->as_text() : "");
  return found.empty() ? nullptr : found.front();
}

/// The fault of the dataset's split. A plugin's own `split` whose default is not a list of shares
/// may have another meaning, so it is not checked.
void split_facts(const Node& root, const SchemaCatalog& catalog,
                 std::map<std::string, ExpressionValue>& facts) {
  const Node* split = root.find("dataset.split");
  const FieldSpec* spec = field_at(root, "dataset.split", catalog);
  if (!split || !spec) return;
  std::string fault;
  std::string usual = spec->default_value;
  std::erase_if(usual,
                [](char c) { return c == '\'' || c == '"'; });  // YAML may have written quotes
  if (!are_shares(usual, fault)) return;
  fault.clear();
  are_shares(split->as_text(), fault);
  facts["split.fault"] = fault;
}

/// Whether the dataset has phases, and their fault. A plugin's own `phases` that is no free value
/// may have another meaning, so it is not checked.
void phases_facts(const Node& root, const SchemaCatalog& catalog,
                  std::map<std::string, ExpressionValue>& facts) {
  const Node *phases = root.find("dataset.phases"), *paths = root.find("dataset.paths");
  const FieldSpec* spec = field_at(root, "dataset.phases", catalog);
  if (!phases || !spec || spec->type != FieldType::tree || !paths) return;
  std::string fault;
  try {
    read_phases(*phases, paths->size());
  } catch (const Error& error) {
    fault = error.message();
  }
  facts["phases.given"] = !phases->is_null();
  facts["phases.fault"] = fault;
}

/// Whether scheduler.stages has items. Their faults are reported apart, with their locations.
void stages_facts(const Node& root, std::map<std::string, ExpressionValue>& facts) {
  const Node* stages = root.find("scheduler.stages");
  facts["stages.given"] = stages && stages->is_list() && stages->size() > 0;
}

/// The files whose values the user wrote for this recipe: the recipe itself and files of overrides.
/// The files of config groups are for many recipes, so some of their settings may have no effect in
/// one. `saved`: the recipe contains the values of all its files.
std::vector<SourcePtr> own_files(const ConfigContainer& config, bool saved) {
  std::vector<SourcePtr> out;
  const Composition& composition = config.composition();
  for (const auto& file : composition.files)
    if (!saved && file.file == composition.file) out.push_back(file.source);
  for (const auto& text : config.overrides())
    if (text.written && text.given) out.push_back(text.written.source);
  return out;
}

/// The files of the options of config groups that the command line chose, with the files that they
/// include.
std::vector<std::string> chosen_files(const ConfigContainer& config) {
  std::vector<std::string> out;
  int below = -1;  // the depth of the choice that the next lines belong to
  for (const DefaultsLine& line : config.composition().defaults) {
    if (below >= 0 && line.depth <= below) below = -1;
    const bool chosen =
        line.where && line.where.source->kind() == SourceKind::command_line && line.depth > 0;
    if (chosen && below < 0) below = line.depth;
    if (below >= 0 && !line.file.empty()) out.push_back(line.file);
  }
  return out;
}

}  // namespace

const RuleBook& recipe_rules() {
  static const RuleBook kBook = [] {
    std::vector<Rule> all;
    for (auto part : {world_rules(), model_rules(), pipeline_rules(), context_rules(), moe_rules(),
                      precision_rules(), optimizer_rules(), memory_rules(), running_rules(),
                      unused_setting_rules()})
      all.insert(all.end(), part.begin(), part.end());
    return RuleBook(std::move(all), definitions());
  }();
  return kBook;
}

std::map<std::string, ExpressionValue> rule_facts(const ConfigContainer& config,
                                                  const Cluster& cluster) {
  std::map<std::string, ExpressionValue> facts;
  const Node* nproc = config.root().find("dist.nproc");
  const bool given = cluster.world_size > 0,
             several = nproc && nproc->kind() == NodeKind::integer && nproc->as_int() > 1;
  if (given) facts["given_ranks"] = cluster.world_size;
  if (given || several || cluster.starts_run) facts["least_nproc"] = int64_t{1};
  if (!cluster.gpu.empty()) {
    const GpuType& gpu = gpu_type(cluster.gpu);
    facts["gpu.name"] = std::string(gpu.name);
    facts["gpu.compute_capability"] = gpu.compute_capability;
    facts["gpu.per_domain"] = gpu.per_domain;
  }
  layout_facts(config, facts);
  batch_facts(config, facts);
  return facts;
}

std::string usual_path(Fact fact) {
  for (const UsualPath& usual : kUsualPaths)
    if (usual.fact == fact) return usual.path;
  return {};
}

void check_rules(const ConfigContainer& config, const SchemaCatalog& catalog,
                 const Cluster& cluster, Report& report, bool fixes, bool saved) {
  RuleInput input;
  input.fixes = fixes;
  input.last_resort = "model";
  input.root = &config.root();
  input.facts = rule_facts(config, cluster);
  input.facts["device_communicators"] = device_communicators(catalog);
  input.facts["norms.kept"] = reuses_norm_outputs(config, catalog);
  input.renamed = renamed_settings(config);
  objective_facts(config, catalog, input.facts);
  split_facts(config.root(), catalog, input.facts);
  phases_facts(config.root(), catalog, input.facts);
  stages_facts(config.root(), input.facts);
  input.field = [&](const std::string& path) { return field_at(config.root(), path, catalog); };
  input.given = [own = own_files(config, saved)](const Location& where) {
    return where && (where.source->kind() == SourceKind::command_line ||
                     std::find(own.begin(), own.end(), where.source) != own.end());
  };
  input.chosen = [files = chosen_files(config)](const Location& where) {
    return where && std::find(files.begin(), files.end(), where.source->name()) != files.end();
  };
  input.fixed = [&](const std::string& path) {
    return std::ranges::any_of(config.overrides(),
                               [&](const OverrideText& text) { return text.fixed == path; });
  };
  recipe_rules().check(input, report);
}

void check_rules_within(const Node& sections, const SchemaCatalog& catalog, Report& report) {
  RuleInput input;
  input.root = &sections;
  split_facts(sections, catalog, input.facts);
  phases_facts(sections, catalog, input.facts);
  input.field = [&](const std::string& path) { return field_at(sections, path, catalog); };
  recipe_rules().check(input, report);
}

}  // namespace mtrain
