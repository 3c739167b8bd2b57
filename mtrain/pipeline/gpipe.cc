#include "mtrain/pipeline/plan_check.h"

namespace mtrain {

Schedule gpipe(const Plan& plan) {
  check_plan(plan, "gpipe", 1);
  Schedule schedule(static_cast<size_t>(plan.stages));
  for (int64_t s = 0; s < plan.stages; ++s) {
    Program& program = schedule[static_cast<size_t>(s)];
    for (int64_t m = 0; m < plan.micro_batches; ++m)
      program.push_back(action(ActionKind::forward, s, m));
    for (int64_t m = 0; m < plan.micro_batches; ++m)
      program.push_back(action(ActionKind::backward, s, m));
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace mtrain
