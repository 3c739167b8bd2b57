#include "mtrain/verify/run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <optional>

#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"
#include "mtrain/launch/job.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

using WholeTensors = std::map<std::string, WholeTensor>;

/// Shared by the ranks of one process.
struct Shared {
  std::mutex build, results;
  LayoutFigures figures;
  WholeTensors weights;  // after the last step
};

WholeTensor whole_of(const Shape& shape) {
  WholeTensor whole;
  for (int d = 0; d < shape.rank(); ++d) whole.sizes.push_back(shape[d]);
  whole.values.resize(static_cast<size_t>(shape.numel()));
  whole.given.resize(static_cast<size_t>(shape.numel()));
  return whole;
}

std::vector<float> on_host(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  tensor.context().download(tensor, values.data());
  return values;
}

/// Copies the primary boxes of this rank's part of a tensor, which begins at element `begin` of its
/// shard, to the whole tensor.
void place(const Parameter& p, int64_t begin, const Tensor& tensor, WholeTensors& wholes) {
  std::vector<float> local = on_host(tensor);
  auto [entry, first] = wholes.try_emplace(p.name);
  WholeTensor& whole = entry->second;
  if (first) whole = whole_of(p.global);
  for (const ParamBox& box : p.boxes_of(begin, begin + tensor.numel())) {
    if (!box.is_primary) continue;
    for_each_run(box.global, p.global, box.local, p.local,
                 [&](int64_t to, int64_t from, int64_t count) {
                   for (int64_t i = 0; i < count; ++i) {
                     whole.values[static_cast<size_t>(to + i)] =
                         local[static_cast<size_t>(from - begin + i)];
                     ++whole.given[static_cast<size_t>(to + i)];
                   }
                 });
  }
}

/// The number of elements of this rank's part, including replicas, whose bits differ from the whole
/// tensor.
int64_t count_differences(const WholeTensor& whole, const ParamSlice& slice) {
  const Parameter& p = *slice.parameter;
  std::vector<float> local = on_host(slice.master);
  int64_t apart = 0;
  for (const ParamBox& box : p.boxes_of(slice.begin, slice.begin + slice.count))
    for_each_run(
        box.global, p.global, box.local, p.local,
        [&](int64_t in_whole, int64_t here, int64_t count) {
          for (int64_t i = 0; i < count; ++i)
            apart += std::bit_cast<uint32_t>(whole.values[static_cast<size_t>(in_whole + i)]) !=
                     std::bit_cast<uint32_t>(local[static_cast<size_t>(here - slice.begin + i)]);
        });
  return apart;
}

using Slices = std::span<const OptimizerState::Entry>;

/// Assembles whole tensors from the ranks' shards: threads write to the same memory; processes
/// all-reduce tensors that are zero outside of their shards.
void gather(Slices slices, Tensor ParamSlice::*tensor, const RankMesh& mesh,
            const LayoutRunOptions& options, std::mutex& results, WholeTensors& wholes) {
  {
    std::lock_guard lock(results);
    for (const auto& slice : slices)
      if (slice.is_primary) place(*slice.parameter, slice.begin, slice.*tensor, wholes);
  }
  if (!options.world) return mesh.world().barrier();
  for (const auto& [name, shape] : *options.shapes) {
    WholeTensor& whole = wholes[name];
    whole.sizes = shape.sizes;
    whole.values.resize(shape.values.size());
    whole.given.resize(shape.values.size());
    std::vector<int32_t> given(whole.given.begin(), whole.given.end());
    mesh.world().all_reduce(whole.values);
    mesh.world().all_reduce(given);
    std::copy(given.begin(), given.end(), whole.given.begin());
  }
}

void compare_copies(Slices slices, const RankMesh& mesh, const LayoutRunOptions& options,
                    Shared& shared) {
  gather(slices, &ParamSlice::master, mesh, options, shared.results, shared.weights);
  std::lock_guard lock(shared.results);
  for (const auto& slice : slices)
    if (int64_t n = count_differences(shared.weights.at(slice.parameter->name), slice); n > 0)
      shared.figures.drifted.push_back(cat("the copy of ", slice.parameter->name, " on ",
                                           mesh.place(), " has ", n,
                                           " elements that differ from the primary copy"));
}

/// The traffic that this rank has sent so far along each axis with more than one rank.
std::map<std::string, CommCounters> sent_along(const RankMesh& mesh) {
  const ParallelContext& p = mesh.parallel();
  std::map<std::string, CommCounters> sent;
  for (auto [name, axis] : {std::pair("tp", p.tp),
                            {"cp", p.cp},
                            {"cp_a2a_group", p.cp_a2a_group},
                            {"experts", p.expert_group},
                            {"edp", p.edp},
                            {"pp", &mesh.dense()["pp"]}})
    if (active_axis(axis)) sent[name] = axis->comm().counters();
  if (mesh.replicas().size() > 1) sent["replicas"] = mesh.replicas().counters();
  return sent;
}

std::map<std::string, CommCounters> difference(std::map<std::string, CommCounters> after,
                                               const std::map<std::string, CommCounters>& before) {
  for (auto& [axis, counters] : after)
    for (size_t kind = 0; kind < counters.by_kind.size(); ++kind) {
      const CommCounters::Count& old = before.at(axis).by_kind[kind];
      counters.by_kind[kind] = {counters.by_kind[kind].calls - old.calls,
                                counters.by_kind[kind].bytes_sent - old.bytes_sent};
    }
  return after;
}

void train_rank(const Recipe& recipe, PluginHost& plugins, const LayoutRunOptions& options,
                Communicator& ranks, Shared& shared) {
  RankMesh mesh(recipe, ranks);
  mesh.track_placements();
  std::optional<Trainer> trainer;
  build_in_turn(ranks, shared.build, [&] {
    trainer.emplace(
        recipe, plugins, [] { return false; }, mesh);
  });
  ParamList& parameters = trainer->parameters();
  for (int64_t step = 0; step < options.steps; ++step) {
    bool stop = options.stop && options.stop();
    if (ranks.all_reduce_value<int32_t>(stop ? 1 : 0, ReduceOp::max) != 0) return;
    if (options.before_step) options.before_step(parameters, step);
    std::map<std::string, CommCounters> before = sent_along(mesh);
    StepMetrics metrics = trainer->step();
    if (step == 0)
      gather(trainer->slices(), &ParamSlice::grad, mesh, options, shared.results,
             shared.figures.gradients);
    if (mesh.first() || options.world) {
      shared.figures.losses.push_back(metrics.loss);
      shared.figures.norms.push_back(metrics.grad_norm);
      shared.figures.sent = difference(sent_along(mesh), before);
    }
  }
  compare_copies(trainer->slices(), mesh, options, shared);
  std::lock_guard lock(shared.results);
  shared.figures.memory.resize(static_cast<size_t>(ranks.size()));
  shared.figures.memory[static_cast<size_t>(ranks.rank())] =
      static_cast<int64_t>(trainer->context().memory().peak());
}

}  // namespace

LayoutFigures run_layout(const Recipe& recipe, PluginHost& plugins,
                         const LayoutRunOptions& options) {
  auto start = std::chrono::steady_clock::now();
  Shared shared;
  Recipe own = recipe;  // a copy, since run_job() may resolve settings such as dtype=auto in it
  if (recipe.settings.dist.nproc == 1)
    train_rank(recipe, plugins, {options.steps, options.before_step, options.stop},
               *make_self_communicator(), shared);
  else if (options.world)
    train_rank(recipe, plugins, options, *options.world, shared);
  else
    run_job(own, plugins,
            [&](Communicator& ranks) { train_rank(own, plugins, options, ranks, shared); });
  shared.figures.seconds = seconds_since(start);
  return std::move(shared.figures);
}

}  // namespace mtrain
