#include "adapter_run.h"

#include <CLI/CLI.hpp>

#include "model_source.h"
#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/hf_run_export.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

/// The folder of model.init_from, without changes by the recipe.
void require_plain_base(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  const char* setting = s.model.init_upcycle           ? "model.init_upcycle"
                        : s.model.resizes_vocabulary() ? "model.init_vocab"
                                                       : nullptr;
  MT_USER_CHECK(
      !setting, ErrorClass::config,
      cat(setting,
          ": the run changed the folder of model.init_from, so its adapters do "
          "not belong to that folder's weights"),
      "apply the change first: mtrain import DIR RUN with this setting, mtrain export RUN "
      "NEW, and train the adapters from NEW");
}

/// Before anything else is asked of the run: one that trained all weights needs no base.
void require_adapters(const std::string& from) {
  MT_USER_CHECK(has_adapters(from), ErrorClass::checkpoint,
                cat(printable(from), " has no adapters: its run trained all weights"),
                cat("to write its weights as a folder: mtrain export ", shell_word(from), " DIR"));
}

/// model.init_from of a run, against its own folder; empty: it has none.
fs::path start_of(const std::string& run) {
  const SavedConfig config = read_saved_config(run);
  const Node saved = parse_yaml(config.resolved, "the run's recipe");
  const Node* path = saved.find("model.init_from");
  const bool given = path && path->is(NodeKind::string) && !path->as_text().empty();
  return given ? fs::path(identity_of(config).directory) / path->as_text() : fs::path();
}

/// Adapters need the weights of model.init_from, which may have moved.
void require_folder(const std::string& from, const std::string& base) {
  const fs::path folder = start_of(from);
  std::error_code ignored;
  MT_USER_CHECK(!base.empty() || folder.empty() || fs::exists(folder, ignored),
                ErrorClass::checkpoint,
                cat("the adapters of ", printable(from), " were trained on ",
                    printable(folder.string()), ", which does not exist"),
                "give its new place: --base FOLDER");
}

/// A place next to `near` for a folder that this command removes.
fs::path temporary_base(const fs::path& near) {
  fs::path plain = fs::absolute(near).lexically_normal();
  if (plain.filename().empty()) plain = plain.parent_path();  // a name that ends in a slash
  return unfinished_place(plain.parent_path() / cat(plain.filename().string(), "-base"));
}

}  // namespace

bool has_adapters(const std::string& run) {
  const Node saved = parse_yaml(read_saved_config(run).resolved, "the run's recipe");
  const Node* type = saved.find("peft.type");
  return type && type->is(NodeKind::string) && type->as_text() != "none";
}

fs::path base_run(const std::string& run) {
  const fs::path start = start_of(run);
  return !start.empty() && is_saved_run(start) ? start : fs::path();
}

void require_base_folder(const std::string& from) {
  const fs::path trained_on = base_run(from);
  MT_USER_CHECK(
      trained_on.empty(), ErrorClass::config,
      cat(printable(from),
          ": model.init_from is a run, and adapters of peft need a folder of their weights"),
      cat("export that run, and give its folder with --base: mtrain export ",
          shell_word(trained_on.string()), " FOLDER, then mtrain export ", shell_word(from),
          " ADAPTERS --base FOLDER; or merge the adapters "
          "into their weights: mtrain merge ",
          shell_word(from), " --into DIR"));
}

std::vector<OverrideText> overrides_for_base(const fs::path& run, const std::string& base) {
  if (base.empty()) return {};
  const auto set = [](const std::string& path, const fs::path& value) {
    return OverrideText{cat(path, "=", override_value_text(Node::string(value.string())))};
  };
  const fs::path folder = fs::absolute(base);
  std::vector<OverrideText> out = {set("model.init_from", folder)};
  const Node saved = parse_yaml(read_saved_config(run).resolved, "the run's recipe");
  const Node* from = saved.find("model.init_from");
  for (const char* path : {"tokenizer.path", "dataset.template_path"}) {
    const Node* file = saved.find(path);
    if (!from || !file || !file->is(NodeKind::string) || file->as_text().empty()) continue;
    const fs::path within =
        fs::path(file->as_text()).lexically_normal().lexically_relative(from->as_text());
    if (!within.empty() && *within.begin() != "..")
      out.push_back(set(path, within == "." ? folder : folder / within));
  }
  return out;
}

AdapterRun::AdapterRun(const Request& request, PluginHost& plugins) {
  const auto& [from, base, near, overrides] = request;
  require_adapters(from);
  const fs::path trained_on = base_run(from);
  if (trained_on.empty()) {
    open_with_folder(request, plugins);
    return;
  }
  run_ = open_model(from, overrides, plugins).run;
  require_plain_base(run_->recipe);
  require_base(run_->recipe, run_->base, cat("step ", run_->step, " of ", printable(from)));
  const SavedRun own = open_model(trained_on, {}, plugins).run;
  base_name_ = trained_on.string();
  Recipe with_folder = run_->recipe;
  if (base.empty()) {
    export_base(own, near, plugins);
  } else {
    require_export_of(own, base, near, plugins);
    folder_ = fs::absolute(base), base_name_ = base;
  }
  with_folder.settings.model.init_from = folder_.string();
  adapter_ = adapter_of_run(with_folder, plugins, CheckpointStore(run_->checkpoints), run_->step);
  run_->recipe = std::move(with_folder);
}

AdapterRun::Temporary::~Temporary() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

void AdapterRun::open_with_folder(const Request& request, PluginHost& plugins) {
  const std::string& from = request.from;
  std::vector<OverrideText> overrides = overrides_for_base(from, request.base);
  overrides.insert(overrides.end(), request.overrides.begin(), request.overrides.end());
  require_folder(from, request.base);
  run_ = open_model(from, overrides, plugins).run;
  require_plain_base(run_->recipe);
  require_base(run_->recipe, run_->base, cat("step ", run_->step, " of ", printable(from)));
  adapter_ = adapter_of_run(run_->recipe, plugins, CheckpointStore(run_->checkpoints), run_->step);
  folder_ = hf_source_folder(run_->recipe);
  base_name_ = folder_.string();
}

void AdapterRun::export_base(const SavedRun& own, const fs::path& near, PluginHost& plugins) {
  temporary_.path = temporary_base(near);
  const HfRunOptions options{
      .dtype = DType::f32, .family = {}, .source_config = identity_of(own.config).source_config};
  export_hf_run(own.recipe, plugins, CheckpointStore(own.checkpoints), own.step, temporary_.path,
                options);
  folder_ = temporary_.path;
  const std::string config = hf_source_config(own.recipe);
  dtype_ = hf_run_dtype(own.recipe, config.empty() ? options.source_config : config);
}

void AdapterRun::require_export_of(const SavedRun& own, const std::string& base,
                                   const fs::path& near, PluginHost& plugins) {
  const HfDir folder(base);
  const HfRunOptions options{.dtype = hf_config_dtype(folder.config_text()),
                             .family = model_type_of(folder.config_text()),
                             .source_config = identity_of(own.config).source_config};
  const Temporary exported{temporary_base(near)};
  export_hf_run(own.recipe, plugins, CheckpointStore(own.checkpoints), own.step, exported.path,
                options);
  const bool same = base_identity(exported.path) == base_identity(fs::path(base));
  MT_USER_CHECK(same, ErrorClass::checkpoint,
                cat("--base ", printable(base), " is not an export of ", printable(base_name_),
                    ", step ", own.step, ", on which the adapters were trained"),
                cat("write one: mtrain export ", shell_word(base_name_), " DIR"));
}

void add_tokenizer_overrides(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option("settings", words,
                  "settings of the run's tokenizer, if its files have moved: tokenizer.path=FOLDER")
      ->type_name("KEY=VALUE");
}

std::vector<OverrideText> tokenizer_overrides(const Cli& cli,
                                              const std::vector<std::string>& words) {
  for (const std::string& word : words)
    MT_USER_CHECK(word.starts_with("tokenizer.") && looks_like_override(word), ErrorClass::usage,
                  cat("'", printable(word, 100), "' is no setting of the tokenizer"),
                  "the weights are written as they are, with the tokenizer's files; only the place "
                  "of these can be given: tokenizer.path=FOLDER");
  return placed_overrides(cli, words);
}

}  // namespace mtrain
