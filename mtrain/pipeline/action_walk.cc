#include "mtrain/pipeline/action_walk.h"

#include <algorithm>
#include <utility>

namespace mtrain {

ActionWalk::ActionWalk(const Action& action, const InnerSteps& steps, const Costs& costs,
                       bool split, RankLink& link, std::vector<TimedStep>& done, size_t index)
    : action_(action),
      steps_(steps),
      costs_(costs),
      link_(link),
      done_(done),
      index_(index),
      compute_(costs.computing(action, split)) {
  if (steps.empty() || compute_ == 0) return;
  const StageParts& parts = costs.steps.stages[static_cast<size_t>(action.stage)];
  auto blocks =
      std::count_if(parts.begin(), parts.end(), [](const ModelPart& p) { return p.block; });
  if (blocks > 0) per_block_ = std::exchange(compute_, 0) / static_cast<double>(blocks);
}

bool ActionWalk::run(double& clock) {
  clock = std::max(clock, pending_);
  clock += std::exchange(compute_, 0);  // of a stage without blocks
  while (at_ < steps_.size()) {
    const InnerStep& step = steps_[at_++];
    if (step.what == InnerStepKind::gather) gather(step, clock);
    if (step.what == InnerStepKind::reduce) reduce(step, clock);
    if (step.what == InnerStepKind::weights) clock += time_of(step);
    if (computes(step.what)) {
      for (PartId part : read_by(step, costs_.steps))
        if (auto gathered = link_.parts.find(part); gathered != link_.parts.end())
          clock = std::max(clock, gathered->second);
      clock += time_of(step);
    }
    if (!is_exchange(step.what)) continue;
    double start = std::max(clock, link_.free);
    pending_ = link_.free = start + costs_.of(action_.stage).exchange;
    done_.push_back({step, start, pending_, index_});
    return true;
  }
  return false;
}

void ActionWalk::gather(const InnerStep& step, double& clock) {
  double time = costs_.steps.part(step.part).block ? costs_.of(step.part.stage).block_gather : 0;
  double start = std::max(clock, link_.free);
  link_.free = link_.parts[step.part] = start + time;
  done_.push_back({step, start, start + time, index_});
  if (!costs_.overlap_gathers) clock = start + time;
}

void ActionWalk::reduce(const InnerStep& step, double& clock) {
  const GradientBucket& bucket = costs_.steps.buckets[static_cast<size_t>(step.bucket)];
  double start = std::max(clock, link_.free);
  link_.free = link_.reduced = start + costs_.byte * static_cast<double>(bucket.sent);
  done_.push_back({step, start, link_.free, index_});
  if (bucket.blocking) clock = link_.free;
}

double ActionWalk::time_of(const InnerStep& step) const {
  const ModelPart& part = costs_.steps.part(step.part);
  bool again = action_.what == ActionKind::backward && !step.backward;
  if (!part.block || again) return 0;
  if (step.what == InnerStepKind::weights) return per_block_;
  double share = part.exchanges ? costs_.of(action_.stage).expert_share : 0;
  return per_block_ * (step.what == InnerStepKind::experts ? share : 1 - share);
}

}  // namespace mtrain
