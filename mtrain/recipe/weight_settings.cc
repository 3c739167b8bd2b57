#include "mtrain/recipe/weight_settings.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_length.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/recipe/upcycle.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {

bool is_set(const Node& setting) {
  return setting.loc() && setting.loc().source->kind() != SourceKind::built_in;
}

namespace {

bool same_number(const Node& a, const Node& b) {
  auto numeric = [](const Node& n) { return n.is(NodeKind::integer) || n.is(NodeKind::number); };
  return numeric(a) && numeric(b) && a.as_double() == b.as_double();
}

constexpr const char* kUpcycle = "model.init_upcycle";

bool upcycles(const Node& root) {
  const Node* set = root.find(kUpcycle);
  return set && set->is(NodeKind::boolean) && set->as_bool();
}

/// The model plugin of the folder's dense model, from which one of the plugin `experts` starts.
std::string dense_plugin(const HfFamilies& families, const SchemaCatalog& catalog,
                         const std::string& experts, const Source& file) {
  const PluginSchema schemas = model_schemas(catalog);
  const std::string dense = hf_model_plugin(file.text(), file.name(), families, schemas);
  const Schema *theirs = schemas(dense), *ours = schemas(experts);
  const std::string why = theirs && ours ? not_upcyclable(*theirs, *ours) : "";
  MT_USER_CHECK(why.empty(), ErrorClass::config,
                cat(kUpcycle, "=true, but experts cannot be initialized from the model of ",
                    file.name(), ": ", why),
                "take a folder of llama, mistral, qwen2, qwen3 or another dense decoder, and "
                "model.type=moe; or leave model.init_upcycle out");
  return dense;
}

/// Reads config.json of model.init_from for the recipe's model.
HfFolderConfig read_folder(const Recipe& recipe, const SchemaCatalog& catalog,
                           const PluginHost& plugins, const Source& file) {
  const Node& root = recipe.config.root();
  const HfFamilies families = HfFamilies::read(plugins.folders());
  HfTarget target{.families = families,
                  .plugin = root.find("model.type")->as_text(),
                  .schemas = {catalog.section("model")},
                  .schema_of = model_schemas(catalog)};
  if (upcycles(root)) target.plugin = dense_plugin(families, catalog, target.plugin, file);
  if (const Schema* model = catalog.component("model", target.plugin))
    target.schemas.push_back(model);
  const Node* length = root.find("model.seq_length");
  if (length && length->is(NodeKind::integer)) target.seq_length = length->as_int();
  if (const Node* ignored = root.find("model.init_ignore"); ignored && ignored->is_list())
    for (const Node& key : ignored->items())
      if (key.is_scalar()) target.ignored.push_back(key.as_text());
  return read_hf_config(file.text(), file.name(), target);
}

/// The location of a key such as "rope_scaling.factor" in config.json; the whole file if the key is
/// absent.
Location place_of_key(const SourcePtr& file, const std::string& key) {
  const std::string& text = file->text();
  size_t at = 0;
  for (const std::string& part : split(key, '.')) {
    const std::string quoted = cat('"', part, '"');
    for (;; ++at) {
      at = text.find(quoted, at);
      if (at == std::string::npos) return {file, 0, 0};
      const size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
      if (next != std::string::npos && text[next] == ':') break;
    }
  }
  return locate(file, at);
}

/// The model settings of a saved run, for the recipe's model. Settings that affect neither shapes
/// nor the meaning of weights are marked, since the recipe may change them.
std::vector<HfSetting> settings_of_run(const Recipe& recipe, const SchemaCatalog& catalog,
                                       const Source& saved) {
  const Node theirs = parse_yaml(saved.text(), saved.name());
  const Node& ours = recipe.config.root();
  std::vector<HfSetting> out;
  auto add = [&](const std::string& path, bool may_differ) {
    const Node *there = theirs.find(path), *here = ours.find(path);
    if (!there || !here || brief(*there) == brief(*here)) return;
    const Node* labels =
        theirs.find("model.labels");  // of a model of tokens, labels_of means nothing
    if (path == "model.labels_of" && labels && brief(*labels) == "0") return;
    const bool computed =
        brief(*there) == "0" ||
        brief(*here) == "0";  // such as kv_heads: 0 stands for a value that may be equal
    out.push_back({.path = path,
                   .theirs = path,
                   .value = *there,
                   .training = may_differ || computed,
                   .warns = may_differ && !computed});
  };
  constexpr const char* kType = "model.type";
  add(kType, false);
  if (!out.empty()) return out;
  // Names of classes say which one a score belongs to.
  const Node* names = theirs.find(kClassNames);
  if (names && names->is_list() && names->size() > 0) add(kClassNames, false);
  for (const Schema* owner : catalog.owners("model", ours.find(kType)->as_text()))
    for (const FieldSpec& spec : owner->fields) {
      const bool fixed = spec.resume == ResumeClass::impossible;
      if (fixed ||
          (owner != catalog.section("model") && spec.resume == ResumeClass::changes_result))
        add("model." + spec.path, !fixed);
    }
  return out;
}

/// The length of sequences for which the weights of a run were trained: its own, or a longer one of
/// what it started from. 0: not known, or without rotary positions, or they fit any length.
int64_t trained_length(const fs::path& run, int depth = 0) {
  constexpr int kLongestChain = 16;  // of runs that start from each other
  const SavedConfig saved = read_saved_config(run);
  const Node root = parse_yaml(saved.resolved, run.string());
  const Node *length = root.find("model.seq_length"), *scaling = root.find("model.rope.scaling"),
             *from = root.find("model.init_from");
  if (depth > kLongestChain || !length || !length->is(NodeKind::integer) || !scaling ||
      brief(*scaling) == "dynamic")
    return 0;
  if (!from || from->as_text().empty()) return length->as_int();
  const fs::path start = fs::path(identity_of(saved).directory) / from->as_text();
  std::error_code ignored;
  if (!fs::exists(start, ignored)) return 0;
  const int64_t before = is_saved_run(start)
                             ? trained_length(start, depth + 1)
                             : hf_length_of(HfDir(start).config_text(), start.string());
  return before == 0 ? 0 : std::max(before, length->as_int());
}

/// The settings of a run whose weights initialize the recipe's model.
HfFolderConfig read_run(const Recipe& recipe, const SchemaCatalog& catalog, const fs::path& run,
                        const Source& saved) {
  HfFolderConfig out{settings_of_run(recipe, catalog, saved), {}, {}};
  try {
    out.length = trained_length(run);
  } catch (const Error&) {  // what it started from cannot be read any more
  }
  out.length_key = "model.seq_length";
  return out;
}

/// The file that describes the model of the weights of model.init_from.
SourcePtr description_of_weights(const Recipe& recipe, const fs::path& folder) {
  return with_path_origins(recipe.inputs, [&] {
    if (is_saved_run(folder))
      return std::make_shared<const Source>(SourceKind::file, folder.string(),
                                            read_saved_config(folder).resolved);
    const HfDir weights(folder);  // or one file of it
    return std::make_shared<const Source>(SourceKind::file,
                                          (plain_path(weights.path()) / "config.json").string(),
                                          weights.config_text());
  });
}

constexpr const char* kInitIgnore = "model.init_ignore";

/// Warns of model.init_ignore where no config.json is read. `why`: what model.init_from is.
void warn_of_unused_ignore(Recipe& recipe, const char* why) {
  const Node* ignored = recipe.config.root().find(kInitIgnore);
  if (ignored && ignored->is_list() && ignored->size() > 0)
    recipe.report.warning("init-ignore", kInitIgnore, ignored->loc(),
                          cat("it has no effect: it names keys of config.json of a Hugging Face "
                              "folder, and model.init_from ",
                              why));
}

/// Warns of keys in model.init_ignore that config.json does not have.
void note_absent_keys(const Recipe& recipe, const HfFolderConfig& config, const Source& file,
                      Report& report) {
  if (config.absent.empty()) return;
  report.warning("init-ignore", kInitIgnore, recipe.config.root().at(kInitIgnore).loc(),
                 cat(file.name(), " does not have ", printable(join(config.absent, ", "), 200),
                     ", so ignoring it has no effect"));
}

bool same_setting(const Node& a, const Node& b) {
  return brief(a) == brief(b) || (a.is_scalar() && same_number(a, b));
}

/// Whether one list of blocks is the other one, repeated; the last repetition may be incomplete.
bool same_pattern(const Node& a, const Node& b) {
  if (!a.is_list() || !b.is_list() || a.size() == 0 || b.size() == 0) return false;
  const Node &shorter = a.size() < b.size() ? a : b, &longer = a.size() < b.size() ? b : a;
  for (size_t i = 0; i < longer.size(); ++i)
    if (!same_setting(longer.items()[i], shorter.items()[i % shorter.size()])) return false;
  return true;
}

constexpr const char* kVocabSize = "model.vocab_size";
constexpr const char* kFfn = "model.ffn_hidden_size";
constexpr const char* kLabels = "model.labels";

bool resizes_vocabulary(const Node& root) {
  const Node* how = root.find("model.init_vocab");
  return how && how->is_scalar() && how->as_text() == "resize";
}

/// Weights of a run are taken as they are.
void refuse_changed_run(Recipe& recipe) {
  const Node& root = recipe.config.root();
  auto refuse = [&](const char* id, const char* setting) {
    recipe.report
        .error(id, setting, root.at(setting).loc(),
               cat(brief(root.at(setting)),
                   " is for weights of a Hugging Face folder, and model.init_from is a run of "
                   "mtrain"))
        .fix("export the run (mtrain export RUN DIR) and set model.init_from=DIR");
  };
  if (resizes_vocabulary(root)) refuse("init-vocab", "model.init_vocab");
  if (upcycles(root)) refuse("init-upcycle", kUpcycle);
}

/// Reports settings with which the model cannot start from a dense one.
void check_upcycling(Recipe& recipe, const SchemaCatalog& catalog) {
  const Node& root = recipe.config.root();
  if (!recipe.report.ok() || !upcycles(root)) return;
  const Schema* schema = catalog.component("model", root.at("model.type").as_text());
  if (!schema) return;
  for (const UpcycleFault& fault :
       upcycle_faults(HfModel(root.at("model"), *schema), recipe.folder_ffn)) {
    const std::string path = cat("model.", fault.setting);
    const Node* set = root.find(path);
    recipe.report
        .error("init-upcycle", path, set ? set->loc() : root.at(kUpcycle).loc(),
               cat(fault.what, " (", kUpcycle, "=true)"))
        .fix(fault.fix);
  }
}

/// A folder that is read although it is of no known family may lack the key.
void require_known_rows(Recipe& recipe) {
  const Node& root = recipe.config.root();
  if (!recipe.report.ok() || !resizes_vocabulary(root) || recipe.folder_vocab > 0) return;
  recipe.report
      .error("init-vocab", "model.init_vocab", root.at("model.init_vocab").loc(),
             "config.json of the folder of model.init_from does not give the number of rows of the "
             "embedding (vocab_size)")
      .fix("leave model.init_vocab out, and set model.vocab_size to the number of rows");
}

/// Notes the folder's sizes that the model may change, and says whether it does.
bool is_recipes_own(Recipe& recipe, const HfSetting& theirs) {
  const Node& root = recipe.config.root();
  const int64_t value = theirs.value.is(NodeKind::integer) ? theirs.value.as_int() : 0;
  if (theirs.path == kVocabSize) {
    recipe.folder_vocab = value;
    return resizes_vocabulary(root);
  }
  if (theirs.path != kFfn) return false;
  recipe.folder_ffn = value;
  // Where all blocks have experts, it is the width of an expert: that of a part of the MLP.
  auto is = [&](const char* path, int64_t wanted) {
    const Node* node = root.find(path);
    return node && node->is(NodeKind::integer) && node->as_int() == wanted;
  };
  return upcycles(root) && is_set(root.at(kFfn)) && is("model.moe.first_dense_layers", 0) &&
         is("model.moe.layer_freq", 1);
}

/// Whether the model of the weights has a head of scores.
bool has_score_head(const HfFolderConfig& config, bool is_run, const Source& file) {
  auto positive = [](const Node* n) { return n && n->is(NodeKind::integer) && n->as_int() > 0; };
  if (is_run) return positive(parse_yaml(file.text(), file.name()).find(kLabels));
  return std::ranges::any_of(
      config.settings, [&](const HfSetting& s) { return s.path == kLabels && positive(&s.value); });
}

/// A new head of scores starts from random values, which adapters alone do not train.
void require_trained_score(Recipe& recipe) {
  const Node& root = recipe.config.root();
  const Node *labels = root.find(kLabels), *peft = root.find("peft.type"),
             *trained = root.find("peft.train");
  if (!recipe.report.ok() || !labels || !labels->is(NodeKind::integer) || labels->as_int() == 0 ||
      !peft || peft->as_text() == "none")
    return;
  const Node* of = root.find("model.labels_of");
  const bool tokens = of && of->as_text() == "token";
  const auto trains = [&](const char* parameter) {
    return trained && trained->is_list() &&
           std::ranges::any_of(trained->items(), [&](const Node& pattern) {
             return glob_match(pattern.as_text(), parameter);
           });
  };
  if (trains("score.weight") && (!tokens || trains("score.bias"))) return;
  const char* missing = trains("score.weight") ? "score.bias" : "score.weight";
  recipe.report
      .error("new-score", kLabels, labels->loc(),
             cat(missing, " starts from random values, since the model of ",
                 root.at("model.init_from").as_text(),
                 " has no head of scores, and peft does not train it"))
      .fix(tokens ? "add it to peft.train: peft.train=[score.weight, score.bias]"
                  : "add it to peft.train: peft.train=[score.weight]");
}

/// The recipe's names of labels must be the folder's: which of them a score belongs to is in
/// config.json alone.
void require_label_names(Recipe& recipe, const Source& file) {
  const Node* labels = recipe.config.root().find(kClassNames);
  std::vector<std::string> ours;
  if (labels && labels->is_list())
    for (const Node& one : labels->items()) ours.push_back(one.as_text());
  const std::vector<std::string> theirs = hf_label_names(file.text(), file.name());
  if (ours.size() != theirs.size() || ours == theirs) return;
  recipe.report
      .error("label-names", kClassNames, labels->loc(),
             cat("is [", printable(join(ours, ", ")), "], and id2label of ", file.name(), " is [",
                 printable(join(theirs, ", ")), "]"))
      .fix(
          "give the names in the folder's order; for other labels, change id2label and label2id "
          "in config.json first");
}

/// Reports a setting of the recipe whose value is not that of the weights' model. `file`: what says
/// so. `implied`: HfFolderConfig::implied.
void judge_setting(const HfSetting& theirs, const Node& ours, const std::string& file,
                   Report& report, bool implied = false) {
  if (same_setting(ours, theirs.value)) return;
  if (!theirs.same_as.is_null() && same_setting(ours, theirs.same_as)) return;
  if (theirs.repeats && same_pattern(ours, theirs.value)) return;
  if (theirs.warns)
    report.warning("init-from", theirs.path, ours.loc(),
                   cat(brief(ours), " differs from ", file, ", whose weights were trained with ",
                       brief(theirs.value)));
  if (theirs.training) return;
  std::string leave = cat("leave ", theirs.path, " out, or set it to ", brief(theirs.value));
  if (theirs.path == kVocabSize && !theirs.theirs.empty() && theirs.theirs != kVocabSize)
    leave += "; to add rows, or to drop the last ones: model.init_vocab=resize";
  report
      .error("init-from", theirs.path, ours.loc(),
             cat(brief(ours), " differs from ", file,
                 theirs.theirs.empty()          ? std::string(", whose model_type means ")
                 : theirs.omitted               ? cat(", which omits ", theirs.theirs,
                                                      ", so its default in transformers applies: ")
                 : theirs.theirs == theirs.path ? cat(", where ", theirs.path, " is ")
                                                : cat(", whose ", theirs.theirs, " means "),
                 brief(theirs.value)))
      .fix(implied ? cat(leave,
                         "; to use this value nevertheless, so that the model computes another "
                         "function than "
                         "the folder's: ",
                         "model.init_ignore=[", theirs.path.substr(theirs.path.find('.') + 1), "]")
                   : leave);
}

}  // namespace

void apply_weight_settings(ConfigRequest request, const SchemaCatalog& catalog,
                           const PluginHost& plugins, Recipe& recipe,
                           const std::function<void(const ConfigRequest&)>& load) {
  const Node* from = recipe.config.root().find("model.init_from");
  const Node* type = recipe.config.root().find("model.type");
  if (!from || from->as_text().empty() || !type) return warn_of_unused_ignore(recipe, "is not set");
  fs::path folder = recipe.resolve(from->as_text());
  Report differing;
  bool scores = false;
  SourcePtr file;
  try {
    file = description_of_weights(recipe, folder);
    const std::string& name = file->name();
    const HfFolderConfig config = is_saved_run(folder)
                                      ? read_run(recipe, catalog, folder, *file)
                                      : read_folder(recipe, catalog, plugins, *file);
    scores = has_score_head(config, is_saved_run(folder), *file);
    note_absent_keys(recipe, config, *file, differing);
    warn_of_length(recipe, config, name, differing);
    for (const auto& refusal : config.refused)
      differing.error("hf-config", "model.init_from", place_of_key(file, refusal.key), refusal.what)
          .fix(refusal.fix);
    if (!config.dropouts.empty())
      differing.warning("hf-dropout", "model.init_from", from->loc(),
                        cat(name, " has ", join(config.dropouts, ", "), ", which the model plugin ",
                            type->as_text(), " does not support: training continues without"));
    for (const HfSetting& setting : config.settings) {
      const Node* ours = recipe.config.root().find(setting.path);
      if (!is_saved_run(folder) && is_recipes_own(recipe, setting)) continue;
      if (ours && !is_set(*ours))
        request.overrides.push_back(
            {.text = cat("++", setting.path, "=", override_value_text(setting.value)),
             .written = Location{file, 0, 0},
             .given = false,
             .fixed = setting.training ? "" : setting.path});
      else if (ours)
        judge_setting(setting, *ours, name, differing);
    }
    // The plugin's defaults are these values, so there is nothing to set.
    for (const HfSetting& setting : config.implied)
      if (const Node* ours = recipe.config.root().find(setting.path); ours && is_set(*ours))
        judge_setting(setting, *ours, name, differing, true);
  } catch (const Error&) {
    if (recipe.report.ok()) throw;
    return;  // the recipe's own faults are reported first
  }
  load(request);
  recipe.report.add(std::move(differing));
  if (!scores) require_trained_score(recipe);
  if (!is_saved_run(folder)) {
    if (scores) require_label_names(recipe, *file);
    require_known_rows(recipe);
    return check_upcycling(recipe, catalog);
  }
  warn_of_unused_ignore(recipe, "is a run of mtrain");
  refuse_changed_run(recipe);
}

}  // namespace mtrain
