// mtrain bench: runs some steps of a recipe and shows the time of each kernel. Leaves no files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>

#include "cli.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/config/json_write.h"
#include "mtrain/launch/job.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/train/peak_rate.h"
#include "mtrain/train/profiling.h"
#include "mtrain/train/signals.h"
#include "mtrain/train/teacher_pass.h"
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

/// The launcher's name for the job of this process; empty without a launcher. It is the same on all
/// ranks.
std::string launched_job() {
  if (launched_ranks() == 1) return {};
  for (const char* variable : {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"})
    if (const char* text = std::getenv(variable)) return cat(name_key(text));
  return {};
}

/// A run folder that is deleted when the benchmark ends.
class ScratchRun {
 public:
  ScratchRun() {
    std::string job = launched_job();
    if (!job.empty()) {
      path_ = fs::temp_directory_path() / cat("mtrain-bench-", ::getuid(), "-", job);
      make_directories(path_);
      return;
    }
    std::string name = (fs::temp_directory_path() / "mtrain-bench-XXXXXX").string();
    MT_USER_CHECK(::mkdtemp(name.data()) != nullptr, ErrorClass::io,
                  cat("cannot make a folder like ", name),
                  "set TMPDIR to a folder that can be written");
    path_ = name;
  }
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

/// Peak memory of this process, in bytes. getrusage does not give this value, since its peak
/// includes the memory of the parent program before exec.
int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

struct Measured {
  std::vector<double> seconds, losses;
  uint64_t system_allocations = 0;  // of device memory, during the measured steps
  int64_t memory = 0;               // of the process, peak so far
  MemoryBreakdown tensors;          // the largest uses of it
  size_t reserved = 0;              // allocated from the device for them
};

/// Stops early, with the steps so far, when a signal asks for it.
Measured measure(Trainer& trainer, const BenchOptions& options, Profile* profile,
                 const SignalWatch& signals) {
  trainer.limit_steps(options.warmup + options.steps);
  for (int64_t i = 0; i < options.warmup && signals.received() == 0; ++i) trainer.step();
  trainer.set_profile(profile);
  Measured out;
  uint64_t before = trainer.context().memory().system_allocations();
  for (int64_t i = 0; i < options.steps && signals.received() == 0; ++i) {
    StepMetrics metrics = trainer.step();
    out.seconds.push_back(metrics.step_seconds);
    out.losses.push_back(metrics.loss);
  }
  out.system_allocations = trainer.context().memory().system_allocations() - before;
  trainer.set_profile(nullptr);
  out.memory = peak_memory();
  out.tensors = trainer.context().memory().at_peak();
  out.reserved = trainer.context().memory().peak_reserved();
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// {"bytes": taken from the device, "uses": {"optimizer": …}}
Node memory_node(const MemoryBreakdown& tensors, size_t bytes) {
  Node uses = make_map({});
  for (size_t i = 0; i < kMemoryUses; ++i)
    uses.set(std::string(name(static_cast<MemoryUse>(i))),
             Node::integer(static_cast<int64_t>(tensors.bytes[i])));
  return make_map(
      {{"bytes", Node::integer(static_cast<int64_t>(bytes))}, {"uses", std::move(uses)}});
}

void print_measured(Trainer& trainer, const Recipe& recipe, const Measured& measured,
                    const ProfileSummary& summary, const BenchOptions& options) {
  const RunInfo& info = trainer.info();
  auto tokens = static_cast<double>(info.global_batch_size * info.seq_length);
  double seconds = median(measured.seconds), rate = tokens / seconds,
         flops = rate * info.flops_per_token;
  PeakRate peak = peak_rate(recipe.settings, trainer.device(), trainer.context().backend(),
                            trainer.context().device());
  const double mfu =
      peak.share(flops / static_cast<double>(std::max<int64_t>(1, recipe.settings.dist.nproc)));
  if (options.json) {
    Node seconds_list = Node::list(), losses = Node::list();
    for (double s : measured.seconds) seconds_list.push(Node::number(s));
    for (double loss : measured.losses) losses.push(Node::number(loss));
    std::cout << write_json(make_map(
                     {{"recipe", Node::string(recipe.name)},
                      {"dtype", Node::string(info.dtype)},
                      {"parameters", Node::integer(info.parameters)},
                      {"tokens_per_step", Node::number(tokens)},
                      {"tokens_per_second", Node::number(rate)},
                      {"tflops", Node::number(1e-12 * flops)},
                      {"mfu", Node::number(mfu)},
                      {"peak_tflops", Node::number(1e-12 * peak.flops)},
                      {"peak", Node::string(peak.source)},
                      {"memory_bytes", Node::integer(measured.memory)},
                      {"tensor_memory", memory_node(measured.tensors, measured.reserved)},
                      {"planned_memory", memory_node(info.planned_memory, info.planned_bytes)},
                      {"system_allocations",
                       Node::integer(static_cast<int64_t>(measured.system_allocations))},
                      {"step_seconds", std::move(seconds_list)},
                      {"losses", std::move(losses)},
                      {"profile", to_node(summary)}}))
              << '\n';
    return;
  }
  std::cout << recipe.name << ": " << human_count(static_cast<double>(info.parameters))
            << " parameters, " << info.dtype << " on " << info.device << dtype_note(info) << ", "
            << info.global_batch_size << " x " << info.seq_length << " tokens per step\n";
  if (!options.plain) std::cout << to_text(summary, options.rows);
  std::cout << static_cast<int64_t>(rate) << " tokens/s (median of "
            << counted(measured.seconds.size(), "step") << "), "
            << human_bytes(static_cast<uint64_t>(measured.memory)) << " of host memory at most, "
            << static_cast<int64_t>(1000 * mfu + 0.5) / 10.0 << " % of " << peak.source << '\n'
            << "memory of tensors: " << human_bytes(measured.reserved) << ", planned "
            << human_bytes(info.planned_bytes) << "; at most in use: " << measured.tensors.text()
            << '\n';
}

/// Only the first rank's kernels are shown.
void bench_first(Cli& cli, Trainer& trainer, const Recipe& recipe, const BenchOptions& options,
                 const SignalWatch& signals) {
  DType dtype = *dtype_from_name(trainer.info().dtype);
  Profile profile(trainer.context().backend().kernels());
  Measured measured = measure(trainer, options, options.plain ? nullptr : &profile, signals);
  if (signals.received() != 0) {
    cli.status = 128 + signals.received();
    return;
  }
  ProfileSummary summary =
      summarise(profile, measured.seconds, measure_roofline(trainer.context(), dtype));
  print_measured(trainer, recipe, measured, summary, options);
  if (!options.trace.empty()) write_file_atomic(options.trace, to_trace(profile, recipe.name));
}

void bench(Cli& cli, const RecipeWords& words, const BenchOptions& options) {
  PluginHost plugins = plugin_host(cli);
  ScratchRun scratch;
  RecipeRequest request = recipe_request(cli, words);
  request.launched = launched_ranks();
  // The recipe's own checkpoints are neither continued nor touched.
  for (const auto& [key, value] : {std::pair{"run.dir", scratch.path()},
                                   {"checkpoint.dir", ""},
                                   {"checkpoint.hf", ""},
                                   {"checkpoint.resume", "never"}})
    request.overrides.push_back({key, 0, {}, false, value});
  Recipe recipe = load_recipe(request, plugins);
  print_warnings(recipe);
  resolve_epochs(recipe, plugins);
  int64_t wanted = options.steps + options.warmup, there = recipe.settings.train.steps;
  MT_USER_CHECK(
      wanted <= there, ErrorClass::usage,
      cat("--steps and --warmup ask for ", counted(wanted, "step"), ", but train.steps is ", there),
      cat("add train.steps=", wanted));
  SignalWatch signals;
  std::mutex building;
  auto rank = [&](Communicator& ranks) {
    RankMesh mesh(recipe, ranks);
    std::optional<Trainer> trainer;
    if (!store_teacher(
            recipe, plugins, ranks, building,
            {.stop = [&] { return signals.received() != 0; }, .begins = {}, .steps = wanted})) {
      if (ranks.rank() == 0) cli.status = 128 + signals.received();
      return;
    }
    build_in_turn(ranks, building, [&] {
      trainer.emplace(
          recipe, plugins, [] { return false; }, mesh);
    });
    ranks.barrier();
    if (ranks.rank() == 0) return bench_first(cli, *trainer, recipe, options, signals);
    for (int64_t i = 0; i < wanted && signals.received() == 0; ++i) trainer->step();
  };
  try {
    run_job(recipe, plugins, rank);
  } catch (const Error&) {
    if (signals.received() == 0) throw;  // otherwise ranks that a signal found at different steps
    cli.status = 128 + signals.received();
  }
}

}  // namespace

void add_bench_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("bench", "run some steps and show the time of each kernel");
  auto words = add_recipe_words(*command);
  auto options = std::make_shared<BenchOptions>();
  command->add_option("--steps", options->steps, "number of measured steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "number of steps before the measured ones")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rows", options->rows, "number of lines of the table")
      ->check(check_count)
      ->capture_default_str();
  command->add_option("--trace", options->trace, "write a trace for ui.perfetto.dev")
      ->check(check_output_path)
      ->type_name("FILE");
  command
      ->add_flag("--plain", options->plain, "measure only whole steps, without timing each kernel")
      ->excludes("--trace");
  command->add_flag("--json", options->json, "print as JSON");
  command->footer(
      "Examples:\n"
      "  mtrain bench quickstart\n"
      "  mtrain bench gpt2_124m dataset=mock tokenizer=byte model.seq_length=512 "
      "train.micro_batch_size=4 "
      "train.global_batch_size=4\n"
      "  mtrain bench quickstart --trace step.json   # open it in ui.perfetto.dev");
  command->callback([&cli, words, options] { bench(cli, *words, *options); });
}

}  // namespace mtrain
