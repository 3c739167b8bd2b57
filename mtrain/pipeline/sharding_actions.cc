#include "mtrain/pipeline/sharding_actions.h"

#include <algorithm>

namespace mtrain {
namespace {

using Stages = std::vector<int16_t>;

bool has(const Schedule& schedule, ActionKind what) {
  return std::any_of(schedule.begin(), schedule.end(), [&](const Program& program) {
    return std::any_of(program.begin(), program.end(),
                       [&](const Action& a) { return a.what == what; });
  });
}

bool has_stage(const Stages& stages, int16_t stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

/// For each position in the program, the stages whose parameters are held there: the next ones to
/// be used, at most `resident`. Empty after the last use.
std::vector<Stages> windows(const Program& program, size_t resident) {
  std::vector<Stages> windows(program.size() + 1);
  Stages next;  // all stages that are used from this position on, in the order of their next use
  for (size_t i = program.size(); i-- > 0;) {
    const Action& a = program[i];
    if (uses_params(a.what)) {
      std::erase(next, a.stage);
      next.insert(next.begin(), a.stage);
    }
    size_t most = a.overlapped ? std::max<size_t>(2, resident) : resident;
    windows[i].assign(next.begin(),
                      next.begin() + static_cast<std::ptrdiff_t>(std::min(most, next.size())));
  }
  return windows;
}

Program with_gathers(const Program& program, size_t resident) {
  std::vector<Stages> wanted = windows(program, resident);
  Program out;
  Stages held;
  for (size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    bool second = i > 0 && program[i - 1].overlapped;
    if (uses_params(a.what) && !second)
      for (int16_t stage : wanted[i])
        if (!has_stage(held, stage)) {
          held.push_back(stage);
          out.push_back({ActionKind::gather_params, stage, 0});
        }
    out.push_back(a);
    if (!uses_params(a.what) || a.overlapped) continue;
    std::erase_if(held, [&](int16_t stage) {
      if (has_stage(wanted[i + 1], stage)) return false;
      out.push_back({ActionKind::release_params, stage, 0});
      return true;
    });
  }
  return out;
}

Program with_scatters(const Program& program, ActionKind last_backward) {
  Program out;
  for (const Action& a : program) {
    out.push_back(a);
    if (a.what == last_backward) out.push_back({ActionKind::reduce_scatter, a.stage, a.micro});
  }
  return out;
}

}  // namespace

Schedule with_sharding_actions(Schedule schedule, const ShardingActions& actions) {
  bool gathers = actions.resident_stages > 0 && !has(schedule, ActionKind::gather_params);
  bool scatters = actions.reduce_scatter && !has(schedule, ActionKind::reduce_scatter);
  ActionKind last_backward =
      has(schedule, ActionKind::weight_grad) ? ActionKind::weight_grad : ActionKind::backward;
  for (Program& program : schedule) {
    if (gathers) program = with_gathers(program, static_cast<size_t>(actions.resident_stages));
    if (scatters) program = with_scatters(program, last_backward);
  }
  return schedule;
}

}  // namespace mtrain
