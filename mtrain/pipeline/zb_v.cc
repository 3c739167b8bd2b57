#include <algorithm>
#include <array>

#include "mtrain/pipeline/plan_check.h"

namespace mtrain {
namespace {

/// One rank's program under construction. `down` is its stage on the way down the V, `up` the one
/// on the way up.
struct Leg {
  int64_t stage, micro_batches;
  std::array<int64_t, 3> next = {};  // of F, B, W

  void run(Program& program, Do what) {
    int64_t micro = next[static_cast<size_t>(what)]++;
    if (micro < micro_batches) program.push_back(action(what, stage, micro));
  }
};

void run(Program& program, Leg& leg, std::initializer_list<Do> all) {
  for (Do what : all) leg.run(program, what);
}

}  // namespace

Schedule zb_v(const Plan& plan) {
  check_plan(plan, "zb_v", 2);
  const int64_t ranks = plan.ranks();
  // Fewer micro-batches than fill the V run where they would run among more: those are left out.
  const int64_t full = std::max(plan.micro_batches, 2 * ranks - 1);
  Schedule schedule(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    Program& p = schedule[static_cast<size_t>(r)];
    Leg down{r, plan.micro_batches}, up{2 * ranks - 1 - r, plan.micro_batches};
    auto begun = [](const Leg& leg, Do what) { return leg.next[static_cast<size_t>(what)]; };
    while (begun(down, Do::F) < 2 * (ranks - r) - 1)
      run(p, down, {Do::F});  // until the first one has come down and up
    for (int64_t i = 0; i < r; ++i) run(p, up, {Do::F}), run(p, down, {Do::F});
    for (int64_t i = r; i < ranks; ++i) run(p, up, {Do::F, Do::B, Do::W});
    while (begun(up, Do::F) < begun(down, Do::F) || begun(down, Do::F) < full) {
      if (begun(down, Do::F) < full) run(p, down, {Do::F});
      run(p, down, {Do::B, Do::W});
      run(p, up, {Do::F, Do::B, Do::W});
    }
    for (int64_t i = 0; i < r; ++i)
      run(p, down, {Do::B}), run(p, up, {Do::B});  // nobody may wait for a gradient now
    for (int64_t i = r; i < ranks; ++i) run(p, down, {Do::B, Do::W});
    for (Leg* leg : {&up, &down})
      while (begun(*leg, Do::W) < full) run(p, *leg, {Do::W});
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace mtrain
