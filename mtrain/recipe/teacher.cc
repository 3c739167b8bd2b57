#include "mtrain/recipe/teacher.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/data/dataset.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {
namespace {

constexpr const char* kTeacher = "objective.teacher";
/// Settings of the layout by which a model's dimensions and tokens are sharded. The teacher is not
/// sharded by ZeRO, has no gradients and is not split into stages.
constexpr const char* kLayout[] = {"dist.tp",      "dist.sp",           "dist.cp",
                                   "dist.cp_comm", "dist.cp_hierarchy", "dist.order",
                                   "dist.nproc",   "dist.comm",         "dist.backend"};

/// The plugin of the model in a Hugging Face folder or a run.
std::string model_type(const fs::path& folder, const PluginHost& plugins) {
  std::error_code ignored;
  if (is_saved_run(folder)) {
    const Node saved = parse_yaml(read_saved_config(folder).resolved, folder.string());
    const Node* type = saved.find("model.type");
    if (type) return type->as_text();
  }
  MT_USER_CHECK(fs::exists(folder, ignored), ErrorClass::config,
                cat(kTeacher, ": ", printable(folder.string()), " does not exist"),
                "objective.teacher is a Hugging Face folder or a run of mtrain");
  MT_USER_CHECK(
      fs::exists(folder / "config.json", ignored), ErrorClass::config,
      cat(kTeacher, ": ", printable(folder.string()),
          " is neither a Hugging Face folder (it has no config.json) nor a run of mtrain"),
      "give the folder that has config.json, or a run's folder");
  const SchemaCatalog catalog = schema_catalog(plugins);
  return hf_model_plugin(HfDir(folder).config_text(), (folder / "config.json").string(),
                         HfFamilies::read(plugins.folders()), model_schemas(catalog));
}

/// Refuses a teacher whose distribution is not over the next token.
void require_next_token(const std::string& type, const fs::path& folder,
                        const PluginHost& plugins) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  const Schema* model = catalog.component(catalog.kind_of("model"), type);
  if (!model || model->objective.empty() || model->objective == Dataset::kNextToken ||
      model->objective == Fields::kAnyObjective)
    return;
  throw Error(ErrorClass::config,
              cat(kTeacher, ": the model in ", printable(folder.string()), " is of the plugin ",
                  type, ", which learns the objective '", model->objective, "'"),
              "give a teacher that predicts the next token, such as a Llama");
}

Node teacher_model(const Recipe& student, const Node& given, const PluginHost& plugins) {
  const DistillationSettings settings = *distillation_of(student);
  Node model = Node::map();
  if (settings.teacher.empty()) {
    model = *given.find("model");
    for (const char* own :
         {"init_from", "init_vocab", "init_upcycle", "recompute", "recompute_method",
          "recompute_modules", "recompute_layers", "recompute_distribute"})
      model.erase(own);
    return model;
  }
  const fs::path folder = student.resolve(settings.teacher);
  const std::string type = model_type(folder, plugins);
  require_next_token(type, folder, plugins);
  model.set("type", Node::string(type));
  model.set("init_from", Node::string(folder.string()));
  model.set("seq_length", Node::integer(student.settings.model.seq_length));
  return model;
}

RecipeRequest request_of(const Recipe& student, const PluginHost& plugins) {
  const Node given = student.config.resolved();
  Node tree = Node::map(), train = Node::map(), data = Node::map();
  tree.set("model", teacher_model(student, given, plugins));
  if (const Node* tokenizer = given.find("tokenizer")) tree.set("tokenizer", *tokenizer);
  data.set("type", Node::string("mock"));
  tree.set("dataset", data);
  train.set("steps", Node::integer(1));
  train.set("global_batch_size", Node::integer(std::max<int64_t>(1, student.ranks)));
  tree.set("train", train);
  tree.set("mixed_precision.dtype", Node::string(student.settings.mixed_precision.dtype));
  for (const char* setting : kLayout)
    if (const Node* value = given.find(setting)) tree.set(setting, *value);
  return {.recipe = "the teacher's recipe",
          .text = write_yaml(tree),
          .directory = student.directory,
          .overrides = {},
          .cluster = {.world_size = student.ranks},
          .any_ranks = student.ranks == 0};
}

/// "model.heads (6) …" of the teacher, for a message about objective.teacher.
std::string of_teacher(const Diagnostic& fault) {
  return cat("the teacher cannot be built in this layout: ", fault.path,
             fault.path.empty() ? "" : ": ", fault.message);
}

}  // namespace

std::optional<DistillationSettings> distillation_of(const Recipe& student) {
  if (!student.settings.objective.teaches()) return std::nullopt;
  DistillationSettings settings;
  Fields fields;
  settings.bind(fields);
  read_fields(student.component("objective"), fields);
  return settings;
}

std::optional<fs::path> teacher_store_folder(const Recipe& student) {
  const std::optional<DistillationSettings> settings = distillation_of(student);
  if (!settings || settings->top_k == 0 || (settings->teacher.empty() && settings->store.empty()))
    return std::nullopt;
  return settings->store.empty() ? student.run_directory() / "teacher" : fs::path(settings->store);
}

Recipe teacher_recipe(const Recipe& student, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request_of(student, plugins), plugins);
  recipe.inputs.clear();  // its paths come from no file of the user
  for (const Diagnostic& fault : recipe.report.diagnostics())
    if (fault.severity == Severity::error)
      throw Error(ErrorClass::config, cat(kTeacher, ": ", of_teacher(fault)), fault.help);
  return recipe;
}

void check_teacher(Recipe& student, const PluginHost& plugins) {
  if (!student.report.ok() || !student.settings.objective.teaches()) return;
  // Without a teacher, all distributions are there already.
  if (distillation_of(student)->teacher.empty() && teacher_store_folder(student)) return;
  const Node* node = student.config.root().find(kTeacher);
  const Location where = node ? node->loc() : Location{};
  try {
    const Recipe teacher = read_recipe(request_of(student, plugins), plugins);
    for (const Diagnostic& fault : teacher.report.diagnostics())
      if (fault.severity == Severity::error)
        student.report.error("teacher", kTeacher, where, of_teacher(fault)).fix(fault.help);
  } catch (const Error& fault) {
    std::string message = fault.message();
    if (const std::string prefix = cat(kTeacher, ": "); message.starts_with(prefix))
      message = message.substr(prefix.size());
    student.report.error("teacher", kTeacher, where, message).fix(fault.hint());
  }
}

}  // namespace mtrain
