// mtrain eval: the loss of a saved model on a split of its data.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "model_source.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/record/data_changes.h"
#include "mtrain/train/answer_records.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/trainer.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

struct EvalOptions {
  std::string from, split = "valid", adapter;
  std::vector<std::string> overrides;
  std::string batches = "0";
  bool json = false;
};

bool says_dataset(const Recipe& recipe) {
  const Location& where = recipe.config.root().at("dataset.type").loc();
  return where && where.source->kind() == SourceKind::command_line;
}

/// A Hugging Face folder has no dataset to which a path could belong.
void require_dataset(const EvalOptions& options) {
  const auto set = [&](auto fits) {
    return std::ranges::find_if(options.overrides, [&](const std::string& override) {
      return fits(setting_of_override(override));
    });
  };
  const auto type = set([](std::string_view s) { return s == "dataset" || s == "dataset.type"; }),
             other = set([](std::string_view s) { return s.starts_with("dataset."); });
  if (!is_hugging_face(options.from) || type != options.overrides.end() ||
      other == options.overrides.end())
    return;
  throw Error(ErrorClass::usage,
              cat(printable(*other, 200), " belongs to no dataset: a Hugging Face folder has none"),
              "name its type, too: dataset=gpt for prepared tokens, dataset=sft for records");
}

/// The number that --batches gives; Dataset::kOneEpoch for "all", absent for any other text.
std::optional<int64_t> batches_of(const std::string& text) {
  if (text == "all") return Dataset::kOneEpoch;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count >= 0
             ? std::optional(count)
             : std::nullopt;
}

/// Without overrides of the data, the user expects those of the run.
void warn_of_other_data(const ModelSource& source, const EvalOptions& options,
                        const Dataset& dataset) {
  const std::string trained = identity_of(source.run.config).data;
  const bool asked =
      std::any_of(options.overrides.begin(), options.overrides.end(),
                  [](const std::string& o) { return decides_data(setting_of_override(o)); });
  if (trained.empty() || asked) return;
  const std::vector<std::string> changes = data_changes(trained, dataset.identity());
  if (!changes.empty())
    log_warn("the data differ from those on which ", options.from, " was trained:\n  ",
             join(changes, "\n  "));
}

/// A run may have files of its own for a split, which other data do not replace.
void warn_of_own_files(const ModelSource& source, const EvalOptions& options) {
  if (options.split == "train") return;
  const Node& root = source.run.recipe.config.root();
  auto given = [&](const std::string& setting) {
    const Node* value = root.find("dataset." + setting);
    return value && value->loc() && value->loc().source->kind() == SourceKind::command_line;
  };
  if (!given("path") && !given("paths")) return;
  for (const std::string& own : {options.split + "_path", options.split + "_paths"}) {
    const Node* value = root.find("dataset." + own);
    const bool used = value && (value->is_list() ? value->size() > 0 : !value->as_text().empty());
    if (used && !given(own))
      log_warn("--split ", options.split, " reads dataset.", own, "=", brief(*value),
               " of the run, not the data of this command\n  help: dataset.", own,
               value->is_list() ? "=[]" : "=''", ", or --split train");
  }
}

bool learns_scores_of_tokens(const Settings& s, PluginHost& plugins) {
  return s.objective.over_answers() &&
         plugins.load(Objective::kKind, s.objective.type).schema.objective ==
             Dataset::kTokenClasses;
}

/// The perplexity, or what an objective over answers reports.
std::string in_other_words(const EvalMetrics& m, bool of_tokens) {
  if (m.figures.empty()) return cat(" nats per token, perplexity ", std::exp(m.loss));
  std::string out = of_tokens ? " per token with a class" : " per record";
  for (const auto& [name, value] : m.figures) out += cat(", ", name, " ", value);
  return out;
}

/// An objective may compare the model with the one before the run's first step. A folder of weights
/// is no run, and a run of another objective did not save its values.
void require_reference(const ModelSource& source, const std::string& from, PluginHost& plugins) {
  const Recipe& recipe = source.run.recipe;
  const std::string& type = recipe.settings.objective.type;
  if (!recipe.settings.objective.over_answers() || !source.run.reference.empty()) return;
  ObjectiveContext context;
  const auto objective = plugins.make<Objective>(type, recipe.component("objective"), context);
  if (reference_source(recipe.settings, *objective) != ReferenceSource::precomputed) return;
  const Schema& schema = plugins.load(Objective::kKind, type).schema;
  const bool free = std::ranges::any_of(
      schema.fields, [](const FieldSpec& field) { return field.path == "reference_free"; });
  throw Error(ErrorClass::usage,
              cat("objective.type=", type, " compares the model with the one before training, and ",
                  printable(from),
                  source.hugging_face ? " is a folder of weights, not a run"
                                      : " is a run without such an objective"),
              cat("evaluate a run that was trained with it: --from RUN",
                  free ? "; or compare with a reference that prefers no answer: "
                         "objective.reference_free=true"
                       : ""));
}

/// The model before the run's first step, for records of which the run has stored no reference:
/// another split, or records that training did not reach. Loaded when it is needed.
class InitialModel {
 public:
  InitialModel(const SavedRun& run, PluginHost& plugins)
      : recipe_(run.recipe), weights_(identity_of(run.config).weights), plugins_(plugins) {}

  std::vector<ReferenceLogps::Entry> operator()(const MicroBatch& batch) {
    if (!session_) load();
    std::vector<ReferenceLogps::Entry> out;
    answers_->measure(
        std::span(&batch, 1),
        {.interpreter = *interpreter_,
         .input_of = [&](const MicroBatch& one) { return to_device(*session_->ctx, one); }},
        out);
    return out;
  }

 private:
  void load() {
    log_info(
        "the run has not stored the references of all these records: they are computed with "
        "its initial model");
    const auto now = weights_at_start(recipe_);
    for (const auto& [setting, digest] : weights_)
      if (const auto found = now.find(setting); found != now.end() && found->second != digest)
        throw Error(ErrorClass::checkpoint,
                    cat("the weights of ", setting,
                        " have changed since the run began, and its references are those of its "
                        "initial model"),
                    "restore them, or evaluate records for which the run has stored references");
    session_.emplace(recipe_, plugins_, Session::Options{});
    interpreter_.emplace(*session_->ctx, session_->place(), session_->parameters);
    answers_ = make_answer_objective(*session_, nullptr);
    interpreter_->set_objective(std::ref(*answers_));
  }

  const Recipe& recipe_;
  const std::map<std::string, std::string> weights_;  // with which the run began
  PluginHost& plugins_;
  std::optional<Session> session_;
  std::optional<Interpreter> interpreter_;
  std::optional<AnswerObjective> answers_;
};

void evaluate(const Cli& cli, const EvalOptions& options) {
  PluginHost plugins = plugin_host(cli);
  require_dataset(options);
  ModelSource source = open_model(options.from, placed_overrides(cli, options.overrides), plugins);
  SavedRun& saved = source.run;
  const Settings& s = saved.recipe.settings;
  MT_USER_CHECK(!source.hugging_face || says_dataset(saved.recipe), ErrorClass::usage,
                "a Hugging Face folder contains no data",
                "name the data: dataset=gpt dataset.path=PREFIX");
  require_reference(source, options.from, plugins);
  std::unique_ptr<Session> opened = open_session(source, plugins, options.adapter);
  Session& session = *opened;
  DatasetContext context = dataset_context(saved.recipe, session.tokenizer.get());
  auto dataset = with_path_origins(saved.recipe.inputs, [&] {
    return plugins.make<Dataset>(s.dataset.type, saved.recipe.component("dataset"), context);
  });
  require_records(saved.recipe, plugins, *dataset);
  Interpreter interpreter(*session.ctx, session.place(), session.parameters);
  std::optional<AnswerObjective> answers = make_answer_objective(session, nullptr);
  if (answers) answers->continue_with(saved.reference);
  if (answers && answers->source() == ReferenceSource::precomputed) {
    // A run's folder may have moved since, or checkpoint.dir may be elsewhere.
    const fs::path moved = ReferenceLogps::file_in(saved.checkpoints.parent_path());
    answers->reference() = ReferenceLogps::read(
        fs::exists(moved) ? moved : ReferenceLogps::file_in(saved.recipe.run_directory()));
  }
  InitialModel initial(saved, plugins);
  if (answers) {
    answers->set_missing_reference(std::ref(initial));
    interpreter.set_objective(std::ref(*answers));
  }
  Split split = options.split == "train"  ? Split::train
                : options.split == "test" ? Split::test
                                          : Split::valid;
  int64_t batches = *batches_of(options.batches);
  if (batches == 0) batches = std::max<int64_t>(1, s.validation.steps);
  warn_of_other_data(source, options, *dataset);
  warn_of_own_files(source, options);
  if (batches > 0)
    warn_of_repeats(*dataset, split, batches, s.eval_global_batch(),
                    "--batches all evaluates each once");
  EvalMetrics m = evaluate_split(session, interpreter, *dataset, split, batches, nullptr, {},
                                 answers ? &*answers : nullptr)
                      .value();
  if (options.json) {
    nlohmann::ordered_json out{{"step", saved.step}, {"split", options.split}, {"loss", m.loss}};
    if (!answers) out["perplexity"] = std::exp(m.loss);
    out["tokens"] = m.tokens, out["samples"] = m.samples;
    out["dtype"] = s.mixed_precision.dtype, out["seconds"] = m.seconds;
    for (const auto& [name, value] : m.figures) out[name] = value;
    std::cout << out.dump() << '\n';
  } else {
    std::cout << describe(source)
              << (source.hugging_face ? cat(" (in ", computing_type(source), ")") : std::string())
              << ", " << options.split << ": loss " << m.loss
              << in_other_words(m, learns_scores_of_tokens(s, plugins)) << ", "
              << human_count(static_cast<double>(m.tokens)) << " tokens of "
              << (batches > 0 ? cat(counted(batches, "batch", "batches"), " of ",
                                    counted(s.eval_global_batch(), "sample"))
                              : cat(counted(m.samples, "sample"), ", each once,"))
              << " in " << human_seconds(m.seconds) << '\n';
  }
}

}  // namespace

void add_eval_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("eval", "evaluate a saved model on its own or other data");
  auto options = std::make_shared<EvalOptions>();
  command
      ->add_option("--from", options->from,
                   "a run's folder, one of its checkpoints, or a Hugging Face folder")
      ->required()
      ->type_name("RUN|CHECKPOINT|DIR");
  command
      ->add_option("--adapter", options->adapter,
                   "a folder of peft (adapter_config.json) whose adapters are added to the weights")
      ->type_name("DIR");
  command->add_option("--split", options->split, "which split of the data")
      ->check(CLI::IsMember({"train", "valid", "test"}))
      ->capture_default_str();
  command
      ->add_option("--batches", options->batches,
                   "number of global batches; 0: the recipe's validation.steps, at least 1; all: "
                   "each sample of the split once")
      ->capture_default_str()
      ->type_name("N|all")
      ->check(
          [](const std::string& text) {
            return batches_of(text) ? std::string()
                                    : cat("wanted a number of batches or 'all', got '",
                                          printable(text, 40), "'");
          },
          "");
  command->add_flag("--json", options->json, "print as JSON");
  command->add_option("overrides", options->overrides, "settings to change: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "Examples:\n"
      "  mtrain eval --from runs/quickstart\n"
      "  mtrain eval --from runs/quickstart/checkpoints/step-500 --split test --batches 50 --json\n"
      "  mtrain eval --from models/Llama-3.2-1B dataset=gpt dataset.path=data/web");
  command->callback([&cli, options] { evaluate(cli, *options); });
}

}  // namespace mtrain
