#include "show_schedule.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/text.h"
#include "mtrain/pipeline/picture.h"
#include "mtrain/recipe/cluster.h"

namespace mtrain {
namespace {

constexpr int kSvgWidth = 1200, kMostColumns = 400;

/// As many columns per forward of the shortest stage as micro-batch numbers need.
int columns_of(const PipelinePlan& plan, const Simulated& run) {
  double shortest = 0;
  for (int64_t s = 0; s < plan.map.stages(); ++s)
    if (auto n = static_cast<double>(plan.blocks(s)); n > 0)
      shortest = shortest > 0 ? std::min(shortest, n) : n;
  if (shortest == 0) return kMostColumns;
  auto letters = static_cast<double>(1 + std::to_string(plan.plan.micro_batches - 1).size());
  return static_cast<int>(
      std::clamp(std::ceil(letters * run.makespan / shortest), 1.0, double{kMostColumns}));
}

std::string assumptions(const RankSpeed& speed) {
  if (speed.tflops == 0 || speed.link_gb == 0)
    return "  transfers and collectives take no time here: --gpu, or --tflops and --link-gb, give "
           "their cost\n";
  return cat("  transfers and collectives at ", shortest(speed.tflops), " TFLOP/s and ",
             shortest(speed.link_gb), " GB/s per rank\n");
}

}  // namespace

RankSpeed rank_speed(const Recipe& recipe, const std::string& gpu, const RankSpeed& given) {
  RankSpeed speed = given;
  if (gpu.empty()) return speed;
  const GpuType& type = gpu_type(gpu);
  const Settings& s = recipe.settings;
  bool near = s.dist.order == "tp-cp-ep-dp-pp" &&
              s.data_parallel() / s.dist.hsdp * s.dist.cp * s.dist.tp <= type.per_domain;
  if (speed.tflops == 0) speed.tflops = type.tflops;
  if (speed.link_gb == 0 && near) speed.link_gb = type.link_gb;
  return speed;
}

PipelinePlan shown_plan(const Recipe& recipe, const std::vector<InnerStepRules>& built) {
  PipelinePlan plan = pipeline_plan(recipe);
  if (built.empty()) return plan;
  plan.steps.buckets.clear();
  for (size_t r = 0; r < built.size(); ++r) {
    for (int64_t stage : plan.map.stages_of(static_cast<int64_t>(r))) {
      auto s = static_cast<size_t>(stage);
      plan.steps.stages[s] = built[r].stages[s];
    }
    plan.steps.buckets.insert(plan.steps.buckets.end(), built[r].buckets.begin(),
                              built[r].buckets.end());
  }
  return plan;
}

std::string schedule_as_text(const PipelinePlan& plan, const RankSpeed& speed) {
  std::string out;
  for (int64_t r = 0; r < plan.ranks(); ++r)
    out += cat("  rank ", r, ": ", to_text(plan.program(r)), '\n');
  Simulated run = plan.simulated(speed);
  return out + draw_text(run, columns_of(plan, run)) + assumptions(speed);
}

std::string schedule_steps(const PipelinePlan& plan) {
  std::string out;
  for (int64_t r = 0; r < plan.ranks(); ++r)
    for (const std::string& line : split(plan.steps_text(r), '\n'))
      if (!line.empty()) out += cat("  rank ", r, ": ", line, '\n');
  return out;
}

std::string schedule_as_svg(const PipelinePlan& plan, const RankSpeed& speed) {
  return draw_svg(plan.simulated(speed), kSvgWidth, plan.steps);
}

}  // namespace mtrain
