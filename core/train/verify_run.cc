#include "mtrain/train/verify_run.h"

#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/train/job.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

/// Puts what this rank holds of one gradient into the whole tensor. One rank at a time.
void place(const Parameter& p, std::map<std::string, WholeTensor>& whole) {
  WholeTensor& target = whole[p.name];
  if (target.values.empty()) {
    int64_t count = 1;
    for (const Dim& dim : p.dims) {
      target.sizes.push_back(dim.size);
      count *= dim.size;
    }
    target.values.resize(static_cast<size_t>(count));
    target.given.resize(static_cast<size_t>(count));
  }
  std::vector<float> local(static_cast<size_t>(p.main_grad.numel()));
  p.main_grad.run().download(p.main_grad, local.data());
  MT_CHECK_EQ(local.size(), target.values.size());
  for (size_t i = 0; i < local.size(); ++i) {
    target.values[i] = local[i];
    ++target.given[i];
  }
}

/// What the ranks of one run share.
struct Shared {
  std::mutex turn, results;
  LayoutFigures figures;
};

void train_rank(const Recipe& recipe, PluginHost& plugins, const LayoutRunOptions& options, Communicator& ranks,
                Shared& shared) {
  std::optional<Trainer> trainer;
  build_in_turn(ranks, shared.turn, [&] { trainer.emplace(recipe, plugins, [] { return false; }, ranks); });
  for (int64_t step = 0; step < options.steps; ++step) {
    bool stop = options.stop && options.stop();
    if (ranks.all_reduce_value<int32_t>(stop ? 1 : 0, ReduceOp::max) != 0) break;
    if (options.before_step) options.before_step(trainer->parameters(), step);
    StepMetrics metrics = trainer->step();
    std::lock_guard lock(shared.results);
    if (ranks.rank() == 0) {
      shared.figures.losses.push_back(metrics.loss);
      shared.figures.norms.push_back(metrics.grad_norm);
    }
    if (step == 0 && ranks.rank() == 0)
      for (const Parameter& p : trainer->parameters().all()) place(p, shared.figures.gradients);
  }
  std::lock_guard lock(shared.results);
  shared.figures.memory.resize(static_cast<size_t>(ranks.size()));
  shared.figures.memory[static_cast<size_t>(ranks.rank())] = static_cast<int64_t>(trainer->context().memory().peak());
}

}  // namespace

LayoutFigures run_layout(const Recipe& recipe, PluginHost& plugins, const LayoutRunOptions& options) {
  auto start = std::chrono::steady_clock::now();
  Shared shared;
  run_job(recipe, plugins, [&](Communicator& ranks) { train_rank(recipe, plugins, options, ranks, shared); });
  shared.figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(shared.figures);
}

}  // namespace mtrain
