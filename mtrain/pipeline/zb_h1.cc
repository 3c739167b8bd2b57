#include <algorithm>

#include "mtrain/pipeline/plan_check.h"

namespace mtrain {

Schedule zb_h1(const Plan& plan) {
  check_plan(plan, "zb_h1", 1);
  Schedule schedule(static_cast<size_t>(plan.stages));
  for (int64_t s = 0; s < plan.stages; ++s) {
    Program& program = schedule[static_cast<size_t>(s)];
    // Rank s starts s steps later and so holds s fewer micro-batches; this leaves memory for s
    // deferred weight gradients.
    int64_t warmup = std::min(plan.micro_batches, plan.stages - 1 - s), forward = 0, weights = 0;
    for (; forward < warmup; ++forward) program.push_back(action(ActionKind::forward, s, forward));
    for (int64_t backward = 0; backward < plan.micro_batches; ++backward) {
      if (forward < plan.micro_batches)
        program.push_back(action(ActionKind::forward, s, forward++));
      program.push_back(action(ActionKind::backward, s, backward));
      if (backward >= s) program.push_back(action(ActionKind::weight_grad, s, weights++));
    }
    while (weights < plan.micro_batches)
      program.push_back(action(ActionKind::weight_grad, s, weights++));
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace mtrain
