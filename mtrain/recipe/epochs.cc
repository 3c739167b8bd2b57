#include "mtrain/recipe/epochs.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/continued.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/recipe/rules/rules.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

constexpr const char* kEpochs = "train.epochs";

/// The number of samples in one pass over the training data.
int64_t epoch_size(const Recipe& recipe, PluginHost& plugins) {
  const Settings& s = recipe.settings;
  return with_path_origins(recipe.inputs, [&] {
    TokenizerContext of_tokenizer{recipe.directory};
    auto tokenizer =
        plugins.make<Tokenizer>(s.tokenizer.type, recipe.component("tokenizer"), of_tokenizer);
    DatasetContext context = dataset_context(recipe, tokenizer.get());
    context.log_summary = false;  // the trainer opens the dataset again and logs its messages then
    auto dataset = plugins.make<Dataset>(s.dataset.type, recipe.component("dataset"), context);
    return dataset->split(Split::train, Dataset::kOneEpoch)->size();
  });
}

/// The number of samples that the run has read, minus those of the same number of steps with this
/// recipe's batch sizes. 0 for a new run.
int64_t samples_ahead(const Recipe& recipe) {
  const BatchSchedule batches = recipe.settings.batches();
  auto ahead_at = [&](const CheckpointStore& store, int64_t step) {
    const TrainState state =
        meta_from_json(store.meta(step), store.step_folder(step).string()).state;
    return state.consumed_samples - batches.samples_until(state.step);
  };
  return read_continued(recipe, ahead_at).value_or(0);
}

/// Rounds up, so that each sample is seen at least the requested number of times; the last step may
/// use samples of a further pass.
int64_t steps_of_epochs(const Recipe& recipe, int64_t samples) {
  const double wanted = recipe.settings.train.epochs * static_cast<double>(samples) -
                        static_cast<double>(samples_ahead(recipe));
  const double steps = recipe.settings.batches().steps_for(
      std::max(1.0, wanted));  // a run that is past its end has no steps left
  const Node* epochs = recipe.config.root().find(kEpochs);
  MT_USER_CHECK(steps <= kLargestDimension, ErrorClass::config,
                cat(epochs->loc().text(), ": ", kEpochs, ": ", brief(*epochs), " passes over ",
                    counted(samples, "sample"), " are ", steps, " steps"),
                cat("at most ", static_cast<int64_t>(kLargestDimension), " steps are supported"));
  return static_cast<int64_t>(steps);
}

int64_t count_and_log_steps(const Recipe& recipe, PluginHost& plugins) {
  int64_t samples = epoch_size(recipe, plugins), steps = steps_of_epochs(recipe, samples);
  const std::string replaced = replaced_length(recipe);
  log_info(kEpochs, "=", recipe.settings.train.epochs, ": ", counted(steps, "step"),
           ", one epoch has ", counted(samples, "sample"), replaced.empty() ? "" : ", instead of ",
           replaced);
  return steps;
}

/// Logs the number of steps if the recipe sets train.steps.
void log_steps(const Recipe& recipe) {
  if (const std::string replaced = replaced_length(recipe); !replaced.empty()) {
    const Node* steps = recipe.config.root().find(kStepsSetting);
    log_info(kStepsSetting, "=", brief(*steps), " (", steps->loc().text(), "), instead of ",
             replaced);
  }
}

/// Logs the warnings that depend on the number of steps: `check` could not know it.
void log_warnings(const Report& report) {
  const auto rules = recipe_rules().about(kStepsSetting);
  for (const Diagnostic& found : report.diagnostics())
    if (std::ranges::any_of(rules, [&](const Rule* rule) {
          return found.severity == Severity::warning && found.code == cat("rule ", rule->id);
        }))
      log_warn(found.path, ": ", found.message, found.help.empty() ? "" : "; help: ", found.help);
}

/// `logs`: on this rank.
void resolve_steps(Recipe& recipe, int64_t steps, const PluginHost& plugins, bool logs) {
  Location where = recipe.config.root().find(kEpochs)->loc();
  recipe.config.resolve(kStepsSetting, Node::integer(steps).set_location(where), kEpochs);
  recipe.settings.train = read_config<TrainSection>(recipe.config.section("train"));
  recipe.settings.scheduler = read_config<ScheduleConfig>(recipe.config.section("scheduler"));
  Report report;
  check_rules(recipe.config, schema_catalog(plugins), {}, report);
  report.throw_if_errors();
  if (logs) log_warnings(report);
}

}  // namespace

bool counts_epochs(const Recipe& recipe) { return recipe.config.root().find(kEpochs) != nullptr; }

std::string replaced_length(const Recipe& recipe) {
  const char* other = counts_epochs(recipe) ? kStepsSetting : kEpochs;
  const Node* replaced = recipe.config.composition().tree.find(other);
  const Node* steps = recipe.config.root().find(kStepsSetting);
  // A number of steps that was computed from train.epochs has the location of train.epochs, and
  // does not replace it.
  const bool counted_steps =
      replaced && other == kEpochs && steps && steps->loc().text() == replaced->loc().text();
  return replaced && !counted_steps
             ? cat(other, "=", brief(*replaced), " (", replaced->loc().text(), ")")
             : "";
}

void check_length(Recipe& recipe) {
  const Node* steps = recipe.config.root().find(kStepsSetting);
  const std::string replaced = replaced_length(recipe);
  if (!steps || !steps->is(NodeKind::integer) || steps->as_int() != 0 || replaced.empty()) return;
  recipe.report
      .error("conflict", kStepsSetting, steps->loc(),
             cat("train.steps=0 replaces ", replaced, ", so nothing would be trained"))
      .fix(cat("leave ", kStepsSetting, " out"));
}

void resolve_epochs(Recipe& recipe, PluginHost& plugins) {
  if (!counts_epochs(recipe)) return log_steps(recipe);
  resolve_steps(recipe, count_and_log_steps(recipe, plugins), plugins, true);
}

void resolve_epochs(Recipe& recipe, PluginHost& plugins, Communicator& ranks) {
  if (!counts_epochs(recipe)) return ranks.rank() == 0 ? log_steps(recipe) : void();
  int64_t steps = ranks.rank() == 0 ? count_and_log_steps(recipe, plugins) : 0;
  ranks.broadcast(Buffer(&steps, 1, DType::i64), 0);
  resolve_steps(recipe, steps, plugins, ranks.rank() == 0);
}

}  // namespace mtrain
