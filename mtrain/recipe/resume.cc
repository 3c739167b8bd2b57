#include "mtrain/recipe/resume.h"

#include <algorithm>
#include <span>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/diff.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/recipe/derived_zero.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/rules/rules.h"
#include "mtrain/recipe/setting_effect.h"
#include "mtrain/record/data_changes.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {
namespace {

/// Sections and settings that only training reads.
constexpr std::string_view kOnlyTraining[] = {"train.steps",
                                              "train.epochs",
                                              "train.on_nonfinite",
                                              "train.max_skips",
                                              "train.skip_steps",
                                              "train.max_minutes",
                                              "train.weight_hash_interval",
                                              "optimizer",
                                              "scheduler",
                                              "model.recompute",
                                              "model.recompute_method",
                                              "model.recompute_layers",
                                              "model.recompute_modules",
                                              "model.recompute_distribute",
                                              "offload",
                                              "dist.zero",
                                              "dist.resident_stages",
                                              "dist.hsdp",
                                              "dist.outer_zero",
                                              "ddp",
                                              "comm_overlap.delay_wgrad",
                                              "comm_overlap.dispatch_wgrad",
                                              "comm_overlap.embedding_wgrad",
                                              "comm_overlap.embedding_wgrad_limit",
                                              "checkpoint",
                                              "cuda_graph",
                                              "logger",
                                              "validation.interval",
                                              "validation.prompts",
                                              "validation.generate_tokens",
                                              "validation.temperature",
                                              "profiling",
                                              "run.dir",
                                              "run.name"};

/// Sections that training and evaluation read, but not generation; of the dataset, all settings but
/// those of its chat template.
constexpr std::string_view kNotGeneration[] = {"train", "dataset", "validation", "rng"};
constexpr std::string_view kOfChat[] = {"dataset.chat_template", "dataset.template_path",
                                        "dataset.template_name"};

// The changes by class, as lines of a report.
struct Changes {
  std::vector<std::string> impossible, changes_result, start;
  std::vector<std::string> data,
      data_paths;  // of the section dataset: other settings, and (data_paths) settings that name
                   // files
  std::vector<std::string> shared_data;  // data settings of other sections
  std::vector<std::string> tokenizer;    // settings that may change the tokenizer's identity
  std::string advice;
};

const FieldSpec* spec_at(const SchemaCatalog& catalog, const std::string& path,
                         const ConfigContainer& config) {
  auto settings = catalog.settings_at(path, config.type_of(path.substr(0, path.find('.'))));
  return settings.empty() ? nullptr : settings.front();
}

/// The setting that differs: itself, or the setting whose map has the entry, as dataset.columns for
/// dataset.columns.prompt. Null for a setting that one of the recipes does not know.
const FieldSpec* spec_of(const SchemaCatalog& catalog, const Difference& d, const Recipe& before,
                         const Recipe& now) {
  if (d.before && d.after)
    if (const FieldSpec* own = spec_at(catalog, d.path, now.config)) return own;
  for (std::string map = d.path; map.find('.') != map.rfind('.');) {
    map.resize(map.rfind('.'));
    if (!before.config.root().find(map) || !now.config.root().find(map)) continue;
    if (const FieldSpec* owner = spec_at(catalog, map, now.config)) return owner;
  }
  return nullptr;
}

ResumeClass resume_class(const FieldSpec* spec) {
  return spec ? spec->resume : ResumeClass::changes_result;
}

std::string difference_text(const Difference& d,
                            const std::map<std::string, std::string>& origins) {
  std::string before = d.before ? brief(*d.before) : "absent";
  auto who = origins.find(d.path);
  const std::string was = who == origins.end() ? "" : cat("before: ", who->second);
  if (!d.after)
    return cat(d.path, ": ", before, " -> absent", was.empty() ? "" : "   (", was,
               was.empty() ? "" : ")");
  return cat(d.path, ": ", before, " -> ", brief(*d.after), "   (",
             d.after->loc() ? d.after->loc().text() : "unknown location", was.empty() ? "" : "; ",
             was, ")");
}

/// The steps in a list that are after `step` (`after`), or those up to it.
std::vector<int64_t> listed_steps(const Node* list, int64_t step, bool after) {
  std::vector<int64_t> out;
  if (list && list->is_list())
    for (const Node& item : list->items())
      if (item.is(NodeKind::integer) && (item.as_int() > step) == after)
        out.push_back(item.as_int());
  return out;
}

std::vector<int64_t> coming(const Node* list, int64_t step) {
  return listed_steps(list, step, true);
}

/// Refuses steps that the new list adds and that are done: the setting has no effect on them. True
/// if there are any. `step`: the last step of the run so far.
bool refuse_done_steps(const Difference& d, const Recipe& now, int64_t step,
                       const std::map<std::string, std::string>& origins, Changes& out) {
  const std::vector<int64_t> before = listed_steps(d.before, step, false);
  std::vector<int64_t> done = listed_steps(d.after, step, false);
  std::erase_if(done, [&](int64_t s) { return std::ranges::find(before, s) != before.end(); });
  if (done.empty()) return false;
  std::ranges::sort(done);
  std::vector<std::string> names;
  for (const int64_t s : done) names.push_back(cat(s));
  out.impossible.push_back(cat(difference_text(d, origins), "\n    the run is at step ", step,
                               ", so this has no effect on step ", join(names, ", ")));
  out.advice = cat("; to repeat the run from a checkpoint before step ", done.front(),
                   " with this setting: mtrain checkpoint rewind ",
                   shell_word(now.run_directory().string()), " --step N");
  return true;
}

/// What both values stand for, where 0 stands for a number of other settings: 4 for
/// model.kv_heads=0 in a model with four heads. `ids`: of the tokenizer; 0: not known.
std::pair<Node, Node> resolved_values(const Difference& d, const FieldSpec* spec,
                                      const Recipe& before, const Recipe& now, int64_t ids) {
  const std::string usual = spec && spec->fact != Fact::none ? usual_path(spec->fact) : d.path;
  const auto resolved = [&](const Recipe& recipe, const Node& value) {
    const std::string section = d.path.substr(0, d.path.find('.'));
    return resolved_value(usual, recipe.config.type_of(section), value,
                          values_of(recipe.config, ids));
  };
  return {d.before ? resolved(before, *d.before) : Node(),
          d.after ? resolved(now, *d.after) : Node()};
}

/// Settings that stay 0 and stand for another number, by a change that is not reported itself:
/// train.global_batch_size=0 with another micro-batch.
void add_implied(const Recipe& before, const Recipe& now, const SchemaCatalog& catalog,
                 Changes& out) {
  for (const ImpliedChange& change : implied_changes(before.config, now.config)) {
    std::vector<std::string> causes;
    for (const std::string& path : change.from) {
      const Node *was = before.config.root().find(path), *is = now.config.root().find(path);
      if (was && is && !was->same_value(*is)) causes.push_back(path);
    }
    const bool silent = std::ranges::all_of(causes, [&](const std::string& path) {
      return resume_class(spec_at(catalog, path, now.config)) == ResumeClass::safe;
    });
    const bool matters =
        resume_class(spec_at(catalog, change.path, now.config)) == ResumeClass::changes_result;
    if (silent && matters)
      out.changes_result.push_back(cat(change.path, ": 0, which stands for ", join(causes, " and "),
                                       ": ", brief(change.before), " -> ", brief(change.after)));
  }
}

/// `step`: the last step of the run so far. `ids`: of the tokenizer; 0: not known.
Changes compare(const Recipe& now, const SchemaCatalog& catalog, const Recipe& before,
                const std::map<std::string, std::string>& origins, int64_t step, int64_t ids) {
  using enum ResumeClass;
  Changes out;
  for (const auto& d : differences(before.config.root(), now.config.root())) {
    const FieldSpec* spec = spec_of(catalog, d, before, now);
    // A setting that no longer exists was not changed by the user.
    if ((!d.after && !spec) || (!d.before && !d.after->is_scalar())) continue;
    if (same_input(before.inputs, now.inputs, d.path)) continue;
    const auto [was, is] = resolved_values(d, spec, before, now, ids);
    if (d.before && d.after && was.same_value(is)) continue;
    if (!has_effect(before.config, d.path) && !has_effect(now.config, d.path)) continue;
    const ResumeClass resume = resume_class(spec);
    const bool of_dataset = d.path.starts_with("dataset.");
    if (resume == safe && d.path.starts_with("tokenizer."))
      out.tokenizer.push_back(difference_text(d, origins));
    if (now.settings.peft.frozen() && d.path == "model.init_from") continue;  // require_base()
    if (resume == coming_steps && refuse_done_steps(d, now, step, origins, out)) continue;
    if (resume == safe ||
        (resume == coming_steps && coming(d.before, step) == coming(d.after, step)))
      continue;
    const bool of_base = now.settings.peft.frozen() && d.path.starts_with("model.init_");
    auto& lines = resume == impossible || of_base ? out.impossible
                  : resume == start               ? out.start
                  : resume != data                ? out.changes_result
                  : !of_dataset                   ? out.shared_data
                  : spec->input_path              ? out.data_paths
                                                  : out.data;
    lines.push_back(difference_text(d, origins));
    if (d.before && d.after && !was.same_value(*d.before))
      lines.back() = replace_all(lines.back(), cat(d.path, ": 0 -> "),
                                 cat(d.path, ": 0 (here ", brief(was), ") -> "));
  }
  add_implied(before, now, catalog, out);
  return out;
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

/// Data settings are refused if they change the samples that were already read. A data setting of
/// another section may affect more than the data. `later`: the samples still to be read change.
void judge_data(const std::string& before, const std::string& now, bool later, Changes& changes) {
  if (same_data(before, now)) {
    append(changes.changes_result, changes.shared_data);
    return later ? append(changes.changes_result, changes.data) : void();
  }
  std::vector<std::string> reasons = changes.shared_data;
  append(reasons, changes.data);
  if (const auto files = data_file_changes(before, now); !files.empty())
    append(reasons, changes.data_paths.empty() ? files : changes.data_paths);
  append(changes.impossible, reasons.empty() ? data_changes(before, now) : reasons);
}

/// Refuses settings that change the order of the samples that were already read.
void judge_order(const CheckpointMeta& before, const CheckpointMeta& now, const Recipe& old,
                 const Recipe& recipe, const std::map<std::string, std::string>& origins,
                 Changes& changes) {
  const bool reads_on =
      before.state.consumed_samples > 0 && before.state.step < recipe.settings.train.steps;
  if (!reads_on || !same_data(before.data, now.data) || before.order.empty() ||
      before.order == now.order)
    return;
  // The last step may read a few samples of one more epoch than train.epochs says.
  const BatchSchedule was = old.settings.batches(), is = recipe.settings.batches();
  const int64_t samples_then = was.samples_until(old.settings.train.steps),
                samples_now = before.state.consumed_samples +
                              is.samples_until(recipe.settings.train.steps) -
                              is.samples_until(before.state.step);
  const std::string why =
      cat("dataset.order=megatron orders all samples differently for each number of epochs: the "
          "run began with ",
          before.order, " (", counted(samples_then, "sample"), "), but this recipe has ", now.order,
          " (", counted(samples_now, "sample"), ")");
  const Node* epochs = recipe.config.composition().tree.find("train.epochs");
  size_t num_reported = 0;
  for (const auto& d : differences(old.config.root(), recipe.config.root()))
    for (const char* length : {kStepsSetting, "train.global_batch_size", "train.micro_batch_size",
                               "train.batch_schedule"}) {
      if (!d.after || d.path != length) continue;
      const bool counted =
          length == kStepsSetting && epochs && epochs->loc().text() == d.after->loc().text();
      changes.impossible.push_back(
          cat(counted ? cat("train.epochs=", brief(*epochs), " needs ") : "",
              difference_text(d, origins)));
      ++num_reported;
    }
  if (num_reported == 0) return changes.impossible.push_back(why);
  changes.impossible.back() += cat("\n    ", why);
  changes.advice += "; with dataset.order=open, the length of a run can change";
}

/// How the samples that are still to be read get other weights: the phases of the samples that were
/// read. "" where the weights are the same or the order is not open.
std::string weights_advice(const Recipe& old, const Recipe& recipe, int64_t consumed) {
  auto setting = [](const Recipe& of, const char* path) { return of.config.root().find(path); };
  const Node *was = setting(old, "dataset.weights"), *now = setting(recipe, "dataset.weights"),
             *phases = setting(old, "dataset.phases"), *order = setting(recipe, "dataset.order");
  if (!was || !now || !was->is_list() || !now->is_list() || was->size() != now->size() ||
      was->size() == 0 || brief(*was) == brief(*now) || !order || order->as_text() != "open")
    return {};
  std::string list;
  int64_t before = 0;
  if (phases && phases->is_list()) {
    const std::vector<BlendPhase> parts = read_phases(*phases, was->size());
    for (size_t i = 0; i < parts.size(); ++i) {
      before += parts[i].samples;
      list += cat("{samples: ", parts[i].samples,
                  ", weights: ", write_flow(phases->items()[i].at("weights")), "}, ");
    }
  }
  if (consumed <= before) return {};
  return cat("; for other weights of the samples after the ", consumed,
             " that were read, keep these: 'dataset.phases=[", list,
             "{samples: ", consumed - before, ", weights: ", write_flow(*was),
             "}]' 'dataset.weights=", write_flow(*now), "'");
}

[[noreturn]] void refuse_arithmetic(const std::string& checkpoint, const std::string& before,
                                    const std::string& here) {
  std::string fix = "continue on such a device";
  if (before.starts_with(kCpuArithmetic)) {
    const std::string level = before.substr(kCpuArithmetic.size());
    fix = cpu_has_level(level) ? cat("set MTRAIN_ISA=", level, " in the environment")
                               : cat("continue on a processor that has level ", level);
  }
  throw Error(
      ErrorClass::checkpoint,
      cat(checkpoint, " was computed by \"", before, "\", but this machine uses \"", here,
          "\", so results differ in their last bits, which run.deterministic=true does not allow"),
      cat(fix, ", or set run.deterministic=false"));
}

/// Each item on a line of its own, below a line of lines().
std::string indented(const std::vector<std::string>& items) {
  return items.empty() ? "" : "\n    " + join(items, "\n    ");
}

std::string lines(const std::vector<std::string>& items) { return "\n  " + join(items, "\n  "); }

/// Whether `path` is one of the settings, or lies in one of the sections.
bool among(const std::string& path, std::span<const std::string_view> settings) {
  return std::ranges::any_of(settings, [&](std::string_view key) {
    return path == key || path.starts_with(cat(key, "."));
  });
}

/// The settings of the command line.
std::vector<Difference> given_settings(const Recipe& recipe) {
  const Node nothing = Node::map();
  std::vector<Difference> out = differences(nothing, recipe.config.root());  // every setting
  std::erase_if(out, [](const Difference& d) {
    return !d.after || !d.after->loc() || d.after->loc().source->kind() != SourceKind::command_line;
  });
  return out;
}

std::string in_words(const Difference& d) {
  return cat(d.path, ": ", brief(*d.after), "   (", d.after->loc().text(), ")");
}

}  // namespace

void check_resume(const Recipe& recipe, const PluginHost& plugins, const CheckpointMeta& before,
                  const CheckpointMeta& now, const std::string& checkpoint, int64_t tokenizer_ids,
                  bool quiet) {
  std::string where = cat(checkpoint, " (its recipe)");
  Recipe old = recipe_from_text(before.config, where, before.directory, {}, plugins);
  SavedConfig saved;
  if (before.saved != "{}") saved = saved_config_from_json(before.saved, where);
  const SavedConfig now_saved = saved_config_from_json(now.saved, "this run");
  const auto origins = origins_of(saved);
  const int64_t ids = before.tokenizer == now.tokenizer ? tokenizer_ids : 0;
  Changes changes = compare(recipe, schema_catalog(plugins), old, origins, before.state.step, ids);
  if (before.tokenizer != now.tokenizer)
    changes.impossible.push_back(
        cat("tokenizer: ", before.tokenizer, " -> ", now.tokenizer, indented(changes.tokenizer)));
  const std::string whole = identity_of(saved).data, whole_now = identity_of(now_saved).data;
  judge_data(before.data, now.data, !whole.empty() && !same_data(whole, whole_now), changes);
  judge_order(before, now, old, recipe, origins, changes);
  const std::string arithmetic = identity_of(saved).arithmetic,
                    here = identity_of(now_saved).arithmetic;
  // The checkpoint has the arithmetic of rank 0; other machines of the job may differ.
  if (!quiet && !arithmetic.empty() && arithmetic != here) {
    if (recipe.settings.run.deterministic) refuse_arithmetic(checkpoint, arithmetic, here);
    changes.changes_result.push_back(
        cat("arithmetic: ", arithmetic, " -> ", here, "   (sums have another order)"));
  }
  changes.advice += weights_advice(old, recipe, before.state.consumed_samples);
  if (!changes.impossible.empty())
    throw Error(ErrorClass::checkpoint,
                cat(checkpoint, " cannot be continued by this recipe:", lines(changes.impossible)),
                cat("undo ", changes.impossible.size() == 1 ? "this change" : "these changes",
                    ", or start a new run: run.dir=ANOTHER/FOLDER", changes.advice));
  if (quiet) return;
  if (!changes.changes_result.empty())
    log_warn("resuming with changed settings, which changes the result:",
             lines(changes.changes_result));
  if (!changes.start.empty())
    log_warn("changed settings that are used only when a run begins, and so have no effect:",
             lines(changes.start));
  if (before.saved != "{}")
    for (const std::string& change : changed_programs(saved, now_saved))
      log_warn("resuming with ", change);
}

void check_used_settings(const Recipe& recipe, const PluginHost& plugins, const std::string& from,
                         bool hugging_face) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  std::vector<std::string> unused;
  for (const auto& d : given_settings(recipe)) {
    const bool start = resume_class(spec_at(catalog, d.path, recipe.config)) == ResumeClass::start;
    const bool reads_folder =
        (hugging_face && d.path == "model.init_ignore") ||
        (recipe.settings.peft.frozen() && d.path == "model.init_from");  // adapters need them
    if (among(d.path, kOnlyTraining) || (start && !reads_folder)) unused.push_back(in_words(d));
  }
  if (unused.empty()) return;
  throw Error(ErrorClass::checkpoint,
              cat("the weights of ", printable(from),
                  " are used without training, so these settings have no effect:", lines(unused)),
              unused.size() == 1 ? "leave out this setting; --from alone selects the weights"
                                 : "leave out these settings; --from alone selects the weights");
}

void check_generation_settings(const Recipe& recipe, const std::string& from) {
  std::vector<std::string> unused;
  const std::vector<Difference> given = given_settings(recipe);
  auto is = [&](const char* path) {
    return std::ranges::any_of(given, [&](const Difference& d) { return d.path == path; });
  };
  // Another dataset may be named where the run's own plugin is absent.
  const bool other_data = is("dataset.type");
  for (const auto& d : given)
    if (among(d.path, kNotGeneration) && !among(d.path, kOfChat) &&
        !(other_data && d.path.starts_with("dataset.")))
      unused.push_back(in_words(d));
  if (unused.empty()) return;
  const std::string seed = is("rng.seed") ? "; --seed is the seed of sampling" : "";
  throw Error(
      ErrorClass::checkpoint,
      cat("generate only continues texts with the weights of ", printable(from),
          ", so these settings have no effect:", lines(unused)),
      cat(unused.size() == 1 ? "leave out this setting" : "leave out these settings", seed));
}

void check_used_model(const Recipe& recipe, const PluginHost& plugins, const CheckpointMeta& before,
                      const std::string& checkpoint) {
  check_used_settings(recipe, plugins, checkpoint, false);
  const SchemaCatalog catalog = schema_catalog(plugins);
  // Only the model of the saved recipe matters: its data or optimizer may be absent here.
  Report ignored;
  Recipe old;
  old.config = ConfigContainer::load(
      {.recipe = cat(checkpoint, " (its recipe)"), .text = before.config, .resolved = true},
      catalog, ignored);
  SavedConfig saved;
  if (before.saved != "{}") saved = saved_config_from_json(before.saved, checkpoint);
  Changes changes = compare(recipe, catalog, old, origins_of(saved), before.state.step, 0);
  for (auto* list : {&changes.impossible, &changes.changes_result})
    std::erase_if(*list, [](const std::string& line) {
      // Names of classes say which one a score belongs to.
      const bool names =
          line.starts_with(cat(kClassNames, ":")) && !line.starts_with(cat(kClassNames, ": [] "));
      return !line.starts_with("model.") && !line.starts_with("peft.") && !names;
    });
  if (!changes.impossible.empty())
    throw Error(
        ErrorClass::checkpoint,
        cat(checkpoint,
            ": its weights do not fit these settings of the model:", lines(changes.impossible)),
        changes.impossible.size() == 1 ? "leave out this setting: the saved value applies"
                                       : "leave out these settings: the saved values apply");
  if (!changes.changes_result.empty())
    log_warn("with these changed settings, the model computes another function than the one that ",
             checkpoint, " was trained with:", lines(changes.changes_result));
}

bool continues_run(const Recipe& recipe) {
  std::error_code ignored;
  const fs::path folder = recipe.checkpoint_directory();
  if (!fs::is_directory(folder, ignored)) return false;
  auto all = CheckpointStore(folder).list();
  return std::any_of(all.begin(), all.end(),
                     [](const CheckpointInfo& info) { return info.problem.empty(); });
}

std::vector<std::string> changes_of_run(const Recipe& recipe, const PluginHost& plugins,
                                        const std::vector<std::string>& exact) {
  if (!continues_run(recipe)) return {};
  const fs::path folder = recipe.checkpoint_directory();
  const SavedConfig saved = read_saved_config(folder);
  const Recipe before = recipe_from_text(saved.resolved, cat(folder.string(), " (its recipe)"),
                                         identity_of(saved).directory, {}, plugins);
  const SchemaCatalog& catalog = schema_catalog(plugins);
  const auto origins = origins_of(saved);
  auto is_exact = [&](const std::string& path) {
    return std::any_of(exact.begin(), exact.end(), [&](const std::string& key) {
      return path == key || path.starts_with(key + ".");
    });
  };
  std::vector<std::string> out;
  for (const auto& d : differences(before.config.root(), recipe.config.root())) {
    if (!d.after || (!d.before && !d.after->is_scalar())) continue;
    if (same_input(before.inputs, recipe.inputs, d.path)) continue;
    const ResumeClass resume =
        resume_class(d.before ? spec_at(catalog, d.path, recipe.config) : nullptr);
    if (resume != ResumeClass::safe || is_exact(d.path)) out.push_back(difference_text(d, origins));
  }
  return out;
}

}  // namespace mtrain
