// mtrain bench: some steps of a recipe, where their time went, and what holds them back. Leaves nothing behind.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/train/profiling.h"
#include "mtrain/train/trainer.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

struct BenchOptions {
  int64_t steps = 5, warmup = 2;
  size_t rows = 25;
  std::string trace;
  bool json = false, plain = false;
};

/// A run's folder that goes when the benchmark ends.
class ScratchRun {
 public:
  ScratchRun() : path_(fs::temp_directory_path() / cat("mtrain-bench-", ::getpid())) {}
  ~ScratchRun() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchRun(const ScratchRun&) = delete;
  ScratchRun& operator=(const ScratchRun&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

int64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

struct Measured {
  std::vector<double> seconds, losses;
  uint64_t system_allocations = 0;  // of device memory, during the measured steps
};

Measured measure(Trainer& trainer, const BenchOptions& options, Profile* profile) {
  for (int64_t i = 0; i < options.warmup; ++i) trainer.step();
  trainer.set_profile(profile);
  Measured out;
  uint64_t before = trainer.context().memory().system_allocations();
  for (int64_t i = 0; i < options.steps; ++i) {
    StepMetrics metrics = trainer.step();
    out.seconds.push_back(metrics.step_seconds);
    out.losses.push_back(metrics.loss);
  }
  out.system_allocations = trainer.context().memory().system_allocations() - before;
  trainer.set_profile(nullptr);
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const Trainer& trainer, const Recipe& recipe, const Measured& measured, const ProfileSummary& summary,
           const BenchOptions& options) {
  const RunInfo& info = trainer.info();
  auto tokens = static_cast<double>(info.global_batch_size * info.seq_length);
  double seconds = median(measured.seconds), rate = tokens / seconds, flops = rate * info.flops_per_token;
  double mfu = summary.roof.flops > 0 ? flops / summary.roof.flops : 0;
  if (options.json) {
    Node seconds_list = Node::list(), losses = Node::list();
    for (double s : measured.seconds) seconds_list.push(Node::number(s));
    for (double loss : measured.losses) losses.push(Node::number(loss));
    std::cout << write_json(make_map({{"recipe", Node::string(recipe.name)},
                                      {"dtype", Node::string(info.dtype)},
                                      {"parameters", Node::integer(info.parameters)},
                                      {"tokens_per_step", Node::number(tokens)},
                                      {"tokens_per_second", Node::number(rate)},
                                      {"tflops", Node::number(1e-12 * flops)},
                                      {"mfu", Node::number(mfu)},
                                      {"memory_bytes", Node::integer(peak_rss())},
                                      {"system_allocations",
                                       Node::integer(static_cast<int64_t>(measured.system_allocations))},
                                      {"step_seconds", std::move(seconds_list)},
                                      {"losses", std::move(losses)},
                                      {"profile", to_node(summary)}}))
              << '\n';
    return;
  }
  std::cout << recipe.name << ": " << human_count(static_cast<double>(info.parameters)) << " parameters, "
            << info.dtype << " on " << info.device << ", " << info.global_batch_size << " x " << info.seq_length
            << " tokens per step\n";
  if (!options.plain) std::cout << to_text(summary, options.rows);
  std::cout << static_cast<int64_t>(rate) << " tokens/s (median of " << measured.seconds.size() << " steps), "
            << human_bytes(static_cast<uint64_t>(peak_rss())) << " of memory at most, "
            << static_cast<int64_t>(1000 * mfu + 0.5) / 10.0 << " % of the measured peak\n";
}

void bench(Cli& cli, const RecipeWords& words, const BenchOptions& options) {
  PluginHost plugins = plugin_host(cli);
  ScratchRun scratch;
  RecipeRequest request = recipe_request(cli, words);
  request.overrides.push_back({"run.dir", 0, {}, false, scratch.path()});
  Recipe recipe = load_recipe(request, plugins);
  print_warnings(cli, recipe);
  int64_t wanted = options.steps + options.warmup, there = recipe.settings.train.steps;
  MT_USER_CHECK(wanted <= there, ErrorClass::usage,
                cat("--steps and --warmup ask for ", wanted, " steps, but train.steps is ", there),
                cat("add train.steps=", wanted));
  Trainer trainer(recipe, plugins, [] { return false; });
  DType dtype = *dtype_from_name(recipe.settings.mixed_precision.dtype);
  Profile profile(trainer.context().backend().kernels());
  Measured measured = measure(trainer, options, options.plain ? nullptr : &profile);
  ProfileSummary summary = summarise(profile, measured.seconds, measure_roof(trainer.context(), dtype));
  print(trainer, recipe, measured, summary, options);
  if (!options.trace.empty()) write_file_atomic(options.trace, to_trace(profile, recipe.name));
}

}  // namespace

void add_bench_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("bench", "run some steps and show where their time goes");
  auto words = add_recipe_words(*command);
  auto options = std::make_shared<BenchOptions>();
  command->add_option("--steps", options->steps, "steps that are measured")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--warmup", options->warmup, "steps before them")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--rows", options->rows, "lines of the table")->capture_default_str();
  command->add_option("--trace", options->trace, "write a trace for ui.perfetto.dev")->type_name("FILE");
  command->add_flag("--plain", options->plain, "only the speed: without timing each kernel");
  command->add_flag("--json", options->json, "print as JSON");
  command->footer(
      "Examples:\n"
      "  mtrain bench quickstart\n"
      "  mtrain bench gpt2_124m dataset=mock tokenizer=byte model.seq_length=512 --steps 10\n"
      "  mtrain bench quickstart --trace step.json   # open it in ui.perfetto.dev");
  command->callback([&cli, words, options] { bench(cli, *words, *options); });
}

}  // namespace mtrain
