#include "mtrain/recipe/pipeline_plan.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "mtrain/base/counted.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/schedule_text.h"

namespace mtrain {
namespace {

/// The stage map of a schedule file: each stage is on the rank that first runs it.
StageMap map_of(const Schedule& schedule, const DistSection& dist, const std::string& file) {
  const char* hint =
      "a schedule has one line per pipeline rank, and stages 0 to dist.pp x dist.vp - 1";
  MT_USER_CHECK(static_cast<int64_t>(schedule.size()) == dist.pp, ErrorClass::config,
                cat(file, " has programs for ", counted(schedule.size(), "rank"),
                    ", but dist.pp is ", dist.pp),
                hint);
  std::vector<int64_t> rank_of(static_cast<size_t>(dist.pp * dist.vp), -1);
  for (size_t r = 0; r < schedule.size(); ++r)
    for (const Action& a : schedule[r]) {
      MT_USER_CHECK(a.stage >= 0 && static_cast<size_t>(a.stage) < rank_of.size(),
                    ErrorClass::config,
                    cat(file, ": rank ", r, " has ", to_text(a), ", but dist.pp x dist.vp is ",
                        rank_of.size(), " stages"),
                    hint);
      int64_t& rank = rank_of[static_cast<size_t>(a.stage)];
      if (rank < 0) rank = static_cast<int64_t>(r);
    }
  for (size_t s = 0; s < rank_of.size(); ++s)
    MT_USER_CHECK(rank_of[s] >= 0, ErrorClass::config, cat(file, ": no rank runs stage ", s), hint);
  return StageMap::by_stage(dist.pp, std::move(rank_of));
}

void read_file(const Recipe& recipe, PipelinePlan& plan) {
  const DistSection& dist = recipe.settings.dist;
  plan.name = dist.schedule_file;
  plan.schedule = with_path_origins(
      recipe.inputs, [&] { return load_schedule(recipe.resolve(dist.schedule_file)); });
  plan.map = map_of(plan.schedule, dist, dist.schedule_file);
  add_reduces(plan.schedule);
}

}  // namespace

Program PipelinePlan::program(int64_t rank) const {
  Costs costs;
  if (transfers.blocking) costs.transfer = TransferMode::rendezvous;
  return lower(schedule, map, costs)[static_cast<size_t>(rank)];
}

Schedule PipelinePlan::make() const {
  Schedule made = make_schedule(name, plan);
  return late_weights ? with_late_weights(std::move(made)) : made;
}

PipelinePlan PipelinePlan::for_dry_run() const {
  PipelinePlan few = *this;
  bool steady = name == "1f1b" || name == "interleaved" || name == "zb_h1" || name == "zb_v" ||
                name == "combined";
  if (!steady || (late_head && late_heads == 0)) return few;
  int64_t alone = name == "combined" ? 3 : 2;
  int64_t group = std::max(ranks(), plan.group_size),
          wanted = std::max(ranks() == 1 ? alone : 4 * ranks(), late_heads + 1);
  few.plan.micro_batches = (wanted + group - 1) / group * group;
  if (few.plan.micro_batches >= plan.micro_batches) return *this;
  few.schedule = few.make();
  return few;
}

PipelinePlan PipelinePlan::with_micro_batches(int64_t number) const {
  if (number == plan.micro_batches) return *this;
  PipelinePlan out = *this;
  out.plan.micro_batches = number;
  out.schedule = out.make();
  return out;
}

Simulated PipelinePlan::simulated() const {
  Costs costs;
  for (const StagePart& part : parts) {
    auto blocks = static_cast<double>(part.num_layers + part.num_mtp_layers);
    costs.stages.push_back({blocks, blocks, blocks, blocks, blocks});
  }
  return simulate(schedule, plan, costs);
}

std::string PipelinePlan::text() const {
  std::vector<std::string> letters, held;
  for (const StagePart& part : parts) letters.push_back(part.letters);
  Simulated run = simulated();
  double blocks = 0;
  for (const StagePart& part : parts)
    blocks += static_cast<double>(part.num_layers + part.num_mtp_layers);
  for (double peak : run.peak) {
    std::ostringstream out;
    out << std::setprecision(3) << (blocks > 0 ? peak / blocks : 0);
    held.push_back(out.str());
  }
  std::ostringstream bubble;
  bubble << std::fixed << std::setprecision(1) << 100 * run.bubble;
  return cat(name, ", ", ranks(), " ranks, stages ", join(letters, "|"), ", ",
             counted(plan.micro_batches, "micro-batch", "micro-batches"), ": bubble ", bubble.str(),
             " %, ranks keep activations of at most ", join(held, ", "),
             " micro-batches of the whole model");
}

PipelinePlan pipeline_plan(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  const DistSection& d = s.dist;
  PipelinePlan plan;
  plan.plan = {.stages = d.pp * d.vp,
               .micro_batches = s.micro_batches(),
               .virtual_stages = d.vp,
               .group_size = d.microbatch_group_size};
  const CommOverlapSection& overlap = s.comm_overlap;
  plan.transfers = {.variable_shapes = d.variable_seq_lengths,
                    .blocking = d.vp > 1 && !overlap.p2p,
                    .batched = overlap.batch_p2p};
  plan.late_weights = d.pp > 1 && overlap.delay_wgrad;
  plan.late_head = d.pp > 1 && overlap.embedding_wgrad,
  plan.late_heads = overlap.embedding_wgrad_limit;
  if (d.pp > 1 && !d.schedule_file.empty()) {
    read_file(recipe, plan);
  } else {
    if (d.pp > 1) plan.name = d.schedule;
    if (overlap.moe) plan.name = "combined";
    plan.map = stage_map(plan.name, plan.plan);
    plan.schedule = plan.make();
  }
  SplitRequest request{.layers = recipe.config.fact(Fact::layers).value_or(0),
                       .mtp_layers = recipe.config.fact(Fact::mtp_layers).value_or(0),
                       .first_stage_layers = d.first_stage_layers,
                       .last_stage_layers = d.last_stage_layers,
                       .account_for_embedding = d.account_for_embedding,
                       .account_for_loss = d.account_for_loss,
                       .layout = d.layout};
  if (d.pp > 1)
    plan.parts = split_layers(request, plan.map);
  else
    plan.parts = {{.letters = "all", .num_layers = -1, .embedding = true, .head = true}};
  if (d.schedule_file.empty() || d.pp == 1) {  // generated schedules are valid
    const BatchSchedule batches = s.batches();
    for (const auto& stage : batches.stages())
      plan.with_micro_batches(s.micro_batches(
          stage.samples));  // throws if the schedule cannot run with this number of micro-batches
    return plan;
  }
  Simulated run = plan.simulated();
  MT_USER_CHECK(run.faults.empty(), ErrorClass::config,
                cat(plan.name, " cannot run with ",
                    counted(plan.plan.micro_batches, "micro-batch", "micro-batches"), ": ",
                    join(run.faults, "; ")),
                "a step has train.global_batch_size / (train.micro_batch_size x data-parallel "
                "ranks) micro-batches");
  return plan;
}

}  // namespace mtrain
