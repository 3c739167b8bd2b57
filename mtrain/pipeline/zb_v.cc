#include <algorithm>
#include <array>

#include "mtrain/pipeline/plan_check.h"

namespace mtrain {
namespace {

/// One rank's program under construction. `down` is its stage on the first leg of the V, `up` the
/// one on the second leg.
struct Leg {
  int64_t stage, micro_batches;
  std::array<int64_t, 3> next = {};  // of F, B, W

  void run(Program& program, ActionKind what) {
    int64_t micro = next[static_cast<size_t>(what)]++;
    if (micro < micro_batches) program.push_back(action(what, stage, micro));
  }
};

void run(Program& program, Leg& leg, std::initializer_list<ActionKind> all) {
  for (ActionKind what : all) leg.run(program, what);
}

}  // namespace

Schedule zb_v(const Plan& plan) {
  check_plan(plan, "zb_v", 2);
  const int64_t ranks = plan.ranks();
  // With fewer micro-batches than are needed to fill the V, the order is that of a full V, and
  // actions of micro-batches that do not exist are omitted.
  const int64_t full = std::max(plan.micro_batches, 2 * ranks - 1);
  Schedule schedule(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    Program& p = schedule[static_cast<size_t>(r)];
    Leg down{r, plan.micro_batches}, up{2 * ranks - 1 - r, plan.micro_batches};
    auto begun = [](const Leg& leg, ActionKind what) {
      return leg.next[static_cast<size_t>(what)];
    };
    while (begun(down, ActionKind::forward) < 2 * (ranks - r) - 1)
      run(p, down, {ActionKind::forward});  // until the first micro-batch has passed down and up
    for (int64_t i = 0; i < r; ++i)
      run(p, up, {ActionKind::forward}), run(p, down, {ActionKind::forward});
    for (int64_t i = r; i < ranks; ++i)
      run(p, up, {ActionKind::forward, ActionKind::backward, ActionKind::weight_grad});
    while (begun(up, ActionKind::forward) < begun(down, ActionKind::forward) ||
           begun(down, ActionKind::forward) < full) {
      if (begun(down, ActionKind::forward) < full) run(p, down, {ActionKind::forward});
      run(p, down, {ActionKind::backward, ActionKind::weight_grad});
      run(p, up, {ActionKind::forward, ActionKind::backward, ActionKind::weight_grad});
    }
    for (int64_t i = 0; i < r; ++i)
      run(p, down, {ActionKind::backward}),
          run(p, up,
              {ActionKind::backward});  // B first: other ranks are waiting for these gradients
    for (int64_t i = r; i < ranks; ++i)
      run(p, down, {ActionKind::backward, ActionKind::weight_grad});
    for (Leg* leg : {&up, &down})
      while (begun(*leg, ActionKind::weight_grad) < full) run(p, *leg, {ActionKind::weight_grad});
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace mtrain
