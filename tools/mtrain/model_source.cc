#include "model_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/peft_adapter.h"
#include "mtrain/train/state_io.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

constexpr int64_t kLongest = 4096;  // maximum tokens of a sample, since memory grows with it

std::string tokenizer_of(const fs::path& folder) {
  if (std::string type = tokenizer_type_in(folder); !type.empty()) return type;
  throw Error(
      ErrorClass::config,
      cat(folder.string(), " has no tokenizer: no tokenizer.json, tokenizer.model or vocab.json"),
      "put the model's tokenizer files next to its config.json, or set one: tokenizer=byte, or "
      "tokenizer={type: hf, path: FOLDER}");
}

bool gives(const std::vector<OverrideText>& overrides, std::string_view setting) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const OverrideText& override) {
    const std::string key = override.text.substr(0, override.text.find('='));
    return std::string_view(key).substr(std::min(key.find_first_not_of('+'), key.size())) ==
           setting;
  });
}

/// Commands on a model compute in one process, whatever the layout of the run was.
void refuse_layout(const std::vector<OverrideText>& overrides) {
  for (const OverrideText& override : overrides)
    for (const char* setting :
         {"dist.nproc", "dist.tp", "dist.pp", "dist.cp", "dist.ep", "dist.etp", "dist.vp"})
      MT_USER_CHECK(!override.given || !gives({override}, setting) || override.text.ends_with("=1"),
                    ErrorClass::usage,
                    cat(printable(override.text, 60), ": this command computes in one process"),
                    cat("leave ", setting, " out: weights are read from any layout"));
}

/// Whether a model of scores has those of tokens: the folder's, or those that the user wants in
/// place of a head over the vocabulary.
bool has_token_scores(const std::string& architecture, const HfFamily& family, const Schema& plugin,
                      const std::vector<OverrideText>& overrides) {
  if (!architecture.empty() && architecture == family.token_classification) return true;
  const std::string setting = cat("model.", kLabelsOfSetting);
  for (const OverrideText& override : overrides)
    if (gives({override}, setting))
      return override.raw ? *override.raw == "token" : override.text.ends_with("=token");
  return std::ranges::any_of(plugin.fields, [](const FieldSpec& spec) {
    return spec.path == kLabelsOfSetting && spec.default_value == "token";
  });
}

bool gives_tokenizer(const std::vector<OverrideText>& overrides) {
  return gives(overrides, "tokenizer") || gives(overrides, "tokenizer.type");
}

int64_t length_of(const std::string& config, const HfFamilies& families, const HfFamily& family) {
  auto json = nlohmann::json::parse(config, nullptr, false);
  for (const char* key : {"max_position_embeddings", "n_positions", "n_ctx"})
    if (json.is_object() && json.contains(key) && json[key].is_number_integer())
      if (const HfKey* rule = families.key(&family, key))
        return std::clamp(json[key].get<int64_t>() - rule->plus, int64_t{1}, kLongest);
  return 2048;
}

std::string architecture_in(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  const auto named = json.is_object() ? json.find("architectures") : json.end();
  const bool list = json.is_object() && named != json.end() && named->is_array() &&
                    !named->empty() && named->front().is_string();
  return list ? named->front().get<std::string>() : "";
}

/// The type that config.json says (dtype, or torch_dtype): a model in fp32 is computed in fp32; a
/// model in a smaller type in the faster of bf16 and fp32 on this backend.
std::string dtype_of_config(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  for (const char* key : {"dtype", "torch_dtype"})
    if (json.is_object() && json.contains(key) && json[key].is_string())
      return json[key] == "float32" ? "fp32" : MixedPrecisionSection::kAuto;
  return "fp32";  // the default of transformers
}

/// The text of a recipe for a Hugging Face folder. `more`: further sections.
std::string recipe_text(const fs::path& folder, const std::vector<OverrideText>& overrides,
                        const PluginHost& plugins, const std::string& more) {
  const std::string config = HfDir(folder).config_text();
  const SchemaCatalog catalog = schema_catalog(plugins);
  const std::string file = (folder / "config.json").string();
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const std::string plugin = hf_model_plugin(config, file, families, model_schemas(catalog));
  const HfFamily& family = hf_family_of(config, file, families, plugin);
  const int64_t length = length_of(config, families, family);
  // Any objective over such scores will do: nothing is trained.
  const bool scores = hf_has_scores(config, file, family) || gives(overrides, "model.labels"),
             tokens = scores && has_token_scores(architecture_in(config), family,
                                                 *catalog.component("model", plugin), overrides);
  const std::string path = override_value_text(Node::string(plain_path(folder).string()));
  // A tokenizer given by the user replaces the folder's, including all its settings.
  const std::string tokenizer =
      gives_tokenizer(overrides)
          ? ""
          : cat("tokenizer: {type: ", tokenizer_of(folder), ", path: ", path, "}\n");
  return cat("model: {type: ", plugin, ", init_from: ", path, ", seq_length: ", length, "}\n",
             tokenizer, "dataset: mock\n",
             tokens   ? "objective: token_classification\n"
             : scores ? "objective: classification\n"
                      : "",
             "train: {steps: 0}\nmixed_precision: {dtype: ", dtype_of_config(config), "}\n", more);
}

/// The recipe of this text. Its paths come from no file of the user, so errors about them need not
/// say where they were written.
Recipe made_recipe(const fs::path& folder, const std::string& text,
                   const std::vector<OverrideText>& overrides, const PluginHost& plugins) {
  const std::string name = cat("the recipe made for ", folder.string());
  Recipe recipe = load_recipe({.recipe = name,
                               .text = text,
                               .directory = fs::current_path(),
                               .overrides = overrides,
                               .cluster = {}},
                              plugins);
  std::erase_if(recipe.inputs, [&](const InputPath& input) {
    return input.where && input.where.source->name() == name;
  });
  return recipe;
}

/// Settings that the family leaves to training may still take part in an evaluation: a capacity of
/// experts drops tokens. Warns of those that the user has changed.
void warn_of_training_settings(const Recipe& recipe, const fs::path& folder,
                               const PluginHost& plugins) {
  const std::string& plugin = recipe.settings.model.type;
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const std::string config = HfDir(folder).config_text(), name = folder.string();
  const HfFamily& family = hf_family_of(config, name, families, plugin);
  const SchemaCatalog catalog = schema_catalog(plugins);
  const Schema* schema = catalog.component("model", plugin);
  std::string lines;
  for (const FieldSpec& spec : schema ? schema->fields : std::vector<FieldSpec>()) {
    const Node* value = recipe.config.root().find(cat("model.", spec.path));
    const auto& training = family.training_settings;
    const auto& lost = family.lost_settings;
    // A length says which texts fit, and not what is computed.
    const bool length = spec.unit == "tokens",
               listed = (!length && std::find(training.begin(), training.end(), spec.path) !=
                                        training.end()) ||
                        std::any_of(lost.begin(), lost.end(),
                                    [&](const auto&e) { return e.first == spec.path; });
    if (!value || !listed || spec.training_only) continue;
    const Location& where = value->loc();
    if (where && fs::path(where.source->name()).filename() == "config.json") continue;
    const std::string usual = brief(default_value(spec, ""));
    if (brief(*value) != usual)
      lines += cat("\n  model.", spec.path, ": ", usual, " -> ", brief(*value));
  }
  if (!lines.empty())
    log_warn(
        "settings of training, with which the model may compute another function than that of ",
        folder.string(), ":", lines);
}

SavedRun hugging_face_run(const fs::path& folder, const std::vector<OverrideText>& overrides,
                          PluginHost& plugins) {
  const std::string text = recipe_text(folder, overrides, plugins, "");
  SavedRun run{made_recipe(folder, text, overrides, plugins), {}, 0, {}};
  check_used_settings(run.recipe, plugins, folder.string(), true);
  warn_of_training_settings(run.recipe, folder, plugins);
  resolve_dtype(run.recipe, plugins);
  return run;
}

/// A model expects the ids of the tokenizer with which it was trained. A dataset without text says
/// nothing about the tokenizer.
void warn_of_changed_tokenizer(const ModelSource& source, const Tokenizer& tokenizer) {
  const std::string& trained = source.run.tokenizer;
  if (trained.empty() || trained == tokenizer.identity() || tokenizer.text_identity().empty())
    return;
  // Else its files have changed: the run's settings say where they are.
  const Node& section = source.run.recipe.config.root().at("tokenizer");
  const bool chosen = std::ranges::any_of(section.entries(), [](const auto& entry) {
    const Location& where = entry.value.loc();
    return where && where.source->kind() == SourceKind::command_line;
  });
  log_warn(describe(source), " was trained with another tokenizer: ", printable(trained),
           ", and this is ", printable(tokenizer.identity()), " (", tokenizer.vocab_size(), " ids)",
           differing_parts(trained, tokenizer.identity()),
           "; results are meaningful only if both give a text the same ids\n  help: ",
           chosen ? "leave out the settings of tokenizer to use the run's own"
                  : "restore the tokenizer's files, or name those of the training: "
                    "tokenizer.path=PATH");
}

/// A file of a Hugging Face folder is not the model: --from takes the folder.
void refuse_file_of_folder(const fs::path& from) {
  std::error_code ignored;
  const fs::path folder = from.has_parent_path() ? from.parent_path() : fs::path(".");
  MT_USER_CHECK(!fs::is_regular_file(from, ignored) || !path_exists(folder / "config.json"),
                ErrorClass::checkpoint, cat(from.string(), " is a file of a Hugging Face folder"),
                cat("point --from to the folder: --from ", shell_word(folder.string())));
}

/// Adapters alone are no model.
void refuse_adapters(const fs::path& from) {
  if (!is_peft_folder(from) || is_saved_run(from)) return;
  const std::string base = peft_base(from);
  throw Error(
      ErrorClass::checkpoint,
      cat(from.string(), " has adapters (adapter_config.json), not the weights of a model"),
      cat("give their model with --from and the adapters with --adapter: --from ",
          base.empty() ? "MODEL" : shell_word(base), " --adapter ", shell_word(from.string())));
}

SavedRun saved_run(const fs::path& from, const std::vector<OverrideText>& overrides,
                   PluginHost& plugins) {
  refuse_adapters(from);
  try {
    return open_saved_run(from, overrides, plugins);
  } catch (const Error& error) {
    if (is_saved_run(from)) throw;
    throw Error(error.error_class(), error.message(),
                "give a run's folder, its checkpoints folder, one step-N folder, or a Hugging Face "
                "folder, which has a config.json");
  }
}

}  // namespace

bool is_hugging_face(const fs::path& folder) {
  return path_exists(folder / "config.json") && !is_saved_run(folder);
}

std::string model_type_of(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  const bool says =
      json.is_object() && json.contains("model_type") && json.at("model_type").is_string();
  return says ? json.at("model_type").get<std::string>() : "";
}

Recipe recipe_of_folder(const fs::path& folder, const std::vector<OverrideText>& overrides,
                        PluginHost& plugins) {
  return made_recipe(folder, recipe_text(folder, overrides, plugins, "optimizer: adamw\n"),
                     overrides, plugins);
}

ModelSource open_model(const fs::path& from, const std::vector<OverrideText>& overrides,
                       PluginHost& plugins) {
  refuse_file_of_folder(from);
  refuse_layout(overrides);
  if (is_hugging_face(from)) return {hugging_face_run(from, overrides, plugins), true};
  ModelSource source{saved_run(from, overrides, plugins), false};
  note_kept_dtype(source.run.recipe, source.run.config, plugins);
  resolve_dtype(source.run.recipe, plugins);  // if an override says auto
  return source;
}

std::unique_ptr<Session> open_session(const ModelSource& source, PluginHost& plugins,
                                      const std::string& adapter) {
  // Checkpoints of adapters lack the model's weights.
  const bool frozen = source.run.recipe.settings.peft.frozen();
  std::optional<PeftAdapter> added;
  if (!adapter.empty()) added = read_peft_folder(adapter);
  const bool score_follows = added && std::ranges::any_of(added->whole, [](const PeftWhole& w) {
                               return hf_is_of_score_head(w.tensor);
                             });
  auto session =
      std::make_unique<Session>(source.run.recipe, plugins,
                                Session::Options{.initialise = source.hugging_face || frozen,
                                                 .new_adapters = source.hugging_face,
                                                 .score_follows = score_follows});
  log_rows_without_id(source.run.recipe, *session->tokenizer);
  if (source.hugging_face)
    warn_of_other_tokenizer(source.run.recipe, *session->tokenizer, plugins);
  else
    warn_of_changed_tokenizer(source, *session->tokenizer);
  if (!source.hugging_face) {
    const CheckpointStore store(source.run.checkpoints);
    if (frozen) require_base(source.run.recipe, source.run.base, describe(source));
    require_saved_rows(store, source.run.step, session->parameters, *session->tokenizer);
    load_state(store, source.run.step, session->parameters, nullptr);
    require_all_parameters_read(store, source.run.step, session->parameters);
  }
  if (added) {
    if (source.hugging_face)
      warn_of_other_base(*added, adapter, hf_source_folder(source.run.recipe));
    if (!source.hugging_face && frozen)
      log_warn("the run has adapters of its own, and those of ", printable(adapter),
               " are added to them: to use only the latter, give the model with --from: --from ",
               shell_word(source.run.recipe.settings.model.init_from));
    add_adapters(*added, adapter, *session);
  }
  return session;
}

std::string describe(const ModelSource& source) {
  return source.hugging_face ? source.run.recipe.config.root().at("model.init_from").as_text()
                             : cat("step ", source.run.step);
}

std::string computing_type(const ModelSource& source) {
  const std::string& type = source.run.recipe.settings.mixed_precision.dtype;
  const Location& where = source.run.recipe.config.root().at("mixed_precision.dtype").loc();
  const bool chosen = where && where.source->kind() == SourceKind::command_line;
  if (!source.hugging_face || chosen) return type;
  const fs::path folder = hf_source_folder(source.run.recipe);
  return cat(type, dtype_of_config(HfDir(folder).config_text()) == MixedPrecisionSection::kAuto
                       ? ", the faster of bf16 and fp32 on this machine"
                       : ", because of the dtype in config.json");
}

}  // namespace mtrain
