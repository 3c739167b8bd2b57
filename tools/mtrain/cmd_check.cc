// mtrain check: checks a recipe. Writes nothing, and runs plugin code only with --data or --memory,
// for adapters and groups of parameters, which only the model knows, and for objectives over
// answers.
#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "check_data.h"
#include "cli.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/train/answer_records.h"
#include "mtrain/train/memory_plan.h"
#include "mtrain/train/peft_adapter.h"
#include "mtrain/train/vocabulary_fit.h"
#include "recipe_words.h"
#include "show_schedule.h"
#include "sweeping.h"

namespace mtrain {
namespace {

struct CheckOptions {
  bool resolved = false, json = false, multirun = false, list = false, memory = false, data = false;
  std::string schedule;  // "text", "steps", "svg"; empty: not shown
  RankSpeed speed;       // as given
  Cluster cluster;
};

/// What a step does: the pipeline, and when parameters are gathered.
std::string step_lines(const Recipe& recipe, const CheckOptions& options,
                       const std::vector<InnerStepRules>& built) {
  const DistSection& dist = recipe.settings.dist;
  if (dist.pp == 1 && dist.zero < 3 && options.schedule.empty()) return "";
  PipelinePlan plan = shown_plan(recipe, built);
  std::string out = dist.pp > 1 ? cat("  pipeline ", plan.text(), '\n') : "";
  if (std::string text = plan.gathers_text(); !text.empty())
    out += cat("  parameters are ", text, '\n');
  if (options.schedule == "text")
    out += schedule_as_text(plan, rank_speed(recipe, options.cluster.gpu, options.speed));
  if (options.schedule == "steps") out += schedule_steps(plan);
  return out;
}

std::string dtype_words(const Recipe& recipe) {
  const std::string& dtype = recipe.settings.mixed_precision.dtype;
  if (dtype == MixedPrecisionSection::kAuto)
    return cat("bf16 or fp32 (auto: backend ", recipe.settings.dist.backend,
               " decides when a run starts)");
  return recipe.dtype_reason.empty() ? dtype : cat(dtype, " (auto: ", recipe.dtype_reason, ")");
}

/// The ranks for which the recipe is valid, and how to start them if the recipe does not.
std::string ranks_line(const Recipe& recipe) {
  if (recipe.ranks < 2) return "";
  const int64_t started = recipe.settings.dist.nproc;
  return cat("  for ", recipe.ranks, " ranks",
             started == recipe.ranks ? ""
                                     : cat(": start them with `mtrain --nproc ", recipe.ranks,
                                           " …`, or set dist.nproc=", recipe.ranks),
             '\n');
}

/// What model.init_vocab=resize does, as far as the recipe says it; --data says the rest.
std::string resize_line(const Recipe& recipe, const CheckOptions& options) {
  const ModelSection& model = recipe.settings.model;
  if (options.data || !model.resizes_vocabulary() || recipe.folder_vocab == 0) return "";
  if (model.vocab_size > 0)
    return cat("  ", resize_words(recipe, model.vocab_size, model.vocab_size), '\n');
  return cat("  model.init_vocab=resize: the rows are those of the tokenizer, and the folder has ",
             recipe.folder_vocab, "; --data says how many are added or dropped\n");
}

std::string group_lines(const std::vector<std::string>& groups) {
  std::string out;
  for (const std::string& group : groups) out += cat("  group ", group, '\n');
  return out;
}

/// How long the run is: "100 steps of 4 x 256 tokens = 102k tokens".
std::string length_words(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  const BatchSchedule batches = s.batches();
  const bool changes = batches.periods().size() > 1;
  std::string step = cat(changes ? "(" : "", batches.text(), changes ? ")" : "", " x ",
                         s.model.seq_length, " tokens");
  const std::string replaced = replaced_length(recipe),
                    instead = replaced.empty() ? "" : cat(", instead of ", replaced);
  if (counts_epochs(recipe))
    return cat(s.train.epochs, s.train.epochs == 1 ? " epoch" : " epochs", " in steps of ", step,
               instead);
  const double tokens = static_cast<double>(batches.samples_until(s.train.steps)) *
                        static_cast<double>(s.model.seq_length);
  return cat(counted(s.train.steps, "step"), " of ", step, " = ", human_count(tokens), " tokens",
             instead);
}

/// Reports what is wrong with a section as far as no weights are needed; returns the exit status.
/// `prefix`: of the settings that `check` names.
template <class Check>
int report_section(Recipe& recipe, const char* prefix, const Check& check) {
  try {
    check();
    return 0;
  } catch (const Error& error) {
    const std::string& message = error.message();
    const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.[]0123456789");
    const std::string path = message.starts_with(prefix) ? message.substr(0, end) : "";
    const Node* setting = path.empty() ? nullptr : recipe.config.root().find(path);
    const bool named = setting && message.substr(path.size()).starts_with(": ");
    const std::vector<std::string> lines =
        split(named ? message.substr(path.size() + 2) : message, '\n');
    Diagnostic& found = recipe.report.error(name(error.error_class()), setting ? path : "",
                                            setting ? setting->loc() : Location(), lines.front());
    for (size_t i = 1; i < lines.size(); ++i) found.note(std::string(trim(lines[i])));
    found.fix(error.hint());
    return error.exit_status();
  }
}

void check(Cli& cli, const RecipeWords& words, const CheckOptions& options) {
  PluginHost plugins = plugin_host(cli);
  std::optional<SavedConfig> saved;
  RecipeRequest request = recipe_or_run_request(cli, words, saved);
  request.cluster = options.cluster;
  request.any_ranks = true;
  if (options.multirun || options.list) return check_sweep(cli, request, options.list);
  Recipe recipe = read_recipe(request, plugins);
  warn_of_unused_sweep(recipe);
  DataCheck data;
  if (options.data && recipe.report.ok()) data = check_data(recipe, plugins);
  if (data.status == 0 && recipe.report.ok())
    data.status = report_section(recipe, "objective.", [&] { make_objective(recipe, plugins); });
  if (data.status == 0 && recipe.report.ok())
    data.status = report_section(recipe, "peft.", [&] { check_adapters(recipe, plugins); });
  std::vector<std::string> groups;
  if (data.status == 0 && recipe.report.ok())
    data.status =
        report_section(recipe, "optimizer.", [&] { groups = check_param_groups(recipe, plugins); });
  if (options.json) {
    std::cout << recipe.report.json() << '\n';
    cli.status = data.status != 0 ? data.status : recipe.report.exit_status();
    return;
  }
  if (data.status != 0) throw Error(static_cast<ErrorClass>(data.status), recipe.report.text());
  recipe.report.throw_if_errors();
  print_warnings(recipe);
  if (options.resolved) {
    make_input_paths_absolute(recipe, plugins);
    std::cout << recipe.config.to_yaml();
    return;
  }
  // Without --memory, the backend's plugin is not loaded, so auto is resolved only for the CPU.
  const bool svg = options.schedule == "svg";
  if (options.memory || (!svg && recipe.settings.dist.backend == "cpu"))
    resolve_dtype(recipe, plugins);
  std::optional<MemoryPlan> plan;
  if (options.memory) plan = require_memory(recipe, plugins);
  const std::vector<InnerStepRules> built = plan ? plan->steps : std::vector<InnerStepRules>();
  if (svg) {
    std::cout << schedule_as_svg(shown_plan(recipe, built),
                                 rank_speed(recipe, options.cluster.gpu, options.speed));
    return;
  }
  if (cli.quiet) return;
  const Settings& s = recipe.settings;
  std::cout << recipe.config.composition().file << ": ok\n"
            << "  model " << s.model.type << ", tokenizer " << s.tokenizer.type << ", dataset "
            << s.dataset.type << ", optimizer " << s.optimizer.type << ", " << dtype_words(recipe)
            << '\n'
            << "  " << length_words(recipe) << ", "
            << (s.batches().periods().size() > 1 ? "at most " : "")
            << counted(s.micro_batches(), "micro-batch", "micro-batches") << " per step\n"
            << ranks_line(recipe) << resize_line(recipe, options)
            << step_lines(recipe, options, built) << group_lines(groups) << data.text
            << "  run folder " << recipe.run_directory().string() << '\n';
  if (plan)
    std::cout << "  memory "
              << (plan->ranks_here > 1 ? cat(plan->ranks_here, " ranks, each ") : std::string())
              << human_bytes(plan->peak) << " of " << human_bytes(plan->free)
              << " free: " << plan->at_peak.text() << '\n';
  for (size_t rank = 1; plan && rank < plan->stages.size(); ++rank)
    std::cout << "  memory of pipeline rank " << rank << ": "
              << human_bytes(plan->stages[rank].total()) << ": " << plan->stages[rank].text()
              << '\n';
}

void add_schedule_options(CLI::App& command, CheckOptions& options) {
  auto* schedule =
      command
          .add_option(
              "--schedule", options.schedule,
              "text: print the program of each pipeline rank and a picture of one step; "
              "steps: the inner steps of each action of the program, with --memory those of the "
              "built model; "
              "svg: only the picture")
          ->check(CLI::IsMember({"text", "steps", "svg"}))
          ->type_name("{text,steps,svg}");
  for (const char* other : {"--resolved", "--json", "--multirun", "--list"})
    schedule->excludes(command.get_option(other));
  command
      .add_option(
          "--tflops", options.speed.tflops,
          "with --schedule: speed of a rank in 10^12 operations per second; default: that of "
          "--gpu")
      ->check(CLI::PositiveNumber)
      ->needs(schedule)
      ->type_name("N");
  command
      .add_option("--link-gb", options.speed.link_gb,
                  "with --schedule: bandwidth with which a rank receives, in GB/s; default: that "
                  "of --gpu, if all ranks that share parameters are in one NVLink domain")
      ->check(CLI::PositiveNumber)
      ->needs(schedule)
      ->type_name("N");
}

}  // namespace

void add_check_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("check",
                                     "check a recipe, or the recipe of a run; report all errors, "
                                     "each with its location and a fix");
  auto words = add_recipe_words(*command, "RECIPE|RUN", kRecipeOrRun);
  auto options = std::make_shared<CheckOptions>();
  std::vector<std::string> gpus;
  for (const auto& gpu : gpu_types()) gpus.emplace_back(gpu.name);
  command->add_flag("--resolved", options->resolved, "print every setting with its value, as YAML");
  command->add_flag("--json", options->json, "print the report as JSON");
  command
      ->add_option("--world-size", options->cluster.world_size,
                   "check for this number of ranks instead of dist.nproc")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  command
      ->add_option("--gpu", options->cluster.gpu, "check for ranks on this type of GPU, e.g. h100")
      ->type_name(cat("{", join(gpus, ","), "}"));
  command->add_flag("-m,--multirun", options->multirun,
                    "check every combination of the values of a sweep");
  command->add_flag("--list", options->list, "list these combinations");
  command->add_flag(
      "--data", options->data,
      "also open tokenizer, chat template and data, and read the first sample (runs plugin code)");
  command->get_option("--json")->excludes(command->get_option("--resolved"));
  for (const char* sweep : {"--multirun", "--list"})
    for (const char* other : {"--resolved", "--json", "--data"})
      command->get_option(sweep)->excludes(command->get_option(other));
  add_schedule_options(*command, *options);
  auto* memory = command->add_flag("--memory", options->memory,
                                   "also plan the memory of a step on this machine, by building "
                                   "the model without its weights (runs plugin code)");
  for (const char* other :
       {"--resolved", "--json", "--world-size", "--gpu", "--multirun", "--list"})
    memory->excludes(command->get_option(other));
  command->footer(
      "The devices of dist.backend may be those of another machine: only --memory looks for them.\n"
      "Exit status: 0 valid, 2 wrong arguments, 10 invalid recipe, 12 a run, checkpoint or "
      "model.init_from that cannot be read, 13 a\nplugin that cannot be used; with --data also 11 "
      "and 18 for data that cannot be read.\n"
      "Examples:\n"
      "  mtrain check recipes/quickstart.yaml\n"
      "  mtrain check recipes/quickstart.yaml model.layers=8 --resolved\n"
      "  mtrain check quickstart --data\n"
      "  mtrain check quickstart dist.tp=2 train.micro_batch_size=1 --world-size 8 --gpu h100 "
      "--json\n"
      "  mtrain check quickstart dist.nproc=2 dist.pp=2 model.layers=4 train.micro_batch_size=1 "
      "--schedule text\n"
      "  mtrain check recipes/quickstart.yaml optimizer.lr=1e-3,2e-3 --list");
  command->callback([&cli, words, options] { check(cli, *words, *options); });
}

}  // namespace mtrain
