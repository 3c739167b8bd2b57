#include "mtrain/pipeline/lower.h"

#include <algorithm>
#include <tuple>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/pipeline/rendezvous_order.h"
#include "mtrain/pipeline/schedule_check.h"

namespace mtrain {
namespace {

/// An action, or both sides of a transfer, with its position in the global order.
struct Event {
  double when;
  int64_t order;  // even: an action; odd: the transfer directly after it
  int16_t rank, receiver;
  Action action;
  bool operator<(const Event& o) const { return std::tie(when, order) < std::tie(o.when, o.order); }
};

int64_t check_places(const Schedule& schedule, const StageMap& map) {
  const char* hint = "use a schedule of F, B and W actions with one program per pipeline rank";
  MT_USER_CHECK(static_cast<int64_t>(schedule.size()) == map.ranks(), ErrorClass::config,
                cat("the schedule has programs for ", counted(schedule.size(), "rank"),
                    ", but the pipeline has ", map.ranks()),
                hint);
  int64_t micro_batches = 1;
  for (size_t r = 0; r < schedule.size(); ++r)
    for (const Action& a : schedule[r]) {
      MT_USER_CHECK(!is_transfer(a.what), ErrorClass::config,
                    cat("rank ", r, " already has a transfer: ", to_text(a)), hint);
      MT_USER_CHECK(
          a.stage >= 0 && a.stage < map.stages(), ErrorClass::config,
          cat("rank ", r, " has ", to_text(a), ", but there are only ", map.stages(), " stages"),
          hint);
      MT_USER_CHECK(map.rank(a.stage) == static_cast<int64_t>(r), ErrorClass::config,
                    cat("rank ", r, " has ", to_text(a), ", but stage ", a.stage, " is on rank ",
                        map.rank(a.stage)),
                    hint);
      micro_batches = std::max(micro_batches, int64_t{a.micro} + 1);
    }
  return micro_batches;
}

/// The stage that needs the result of this action, -1 if there is none.
int64_t next_stage(const Action& a, const StageMap& map) {
  if (a.what == ActionKind::forward && a.stage + 1 < map.stages()) return a.stage + 1;
  return a.what == ActionKind::backward ? a.stage - 1 : -1;
}

std::vector<Event> events_of(const Simulated& run, const StageMap& map) {
  std::vector<Event> events;
  for (size_t r = 0; r < run.timeline.size(); ++r)
    for (size_t i = 0; i < run.timeline[r].size(); ++i) {
      const TimedAction& span = run.timeline[r][i];
      auto rank = static_cast<int16_t>(r);
      bool second =
          i > 0 &&
          run.timeline[r][i - 1].action.overlapped;  // keep two overlapped actions adjacent
      events.push_back({second ? run.timeline[r][i - 1].start : span.start, 2 * span.order, rank,
                        -1, span.action});
      int64_t to = next_stage(span.action, map);
      if (to < 0 || map.rank(to) == rank) continue;
      Action send{span.action.what == ActionKind::forward ? ActionKind::send_forward
                                                          : ActionKind::send_backward,
                  span.action.stage, span.action.micro};
      const TimedAction& made = span.action.overlapped ? run.timeline[r][i + 1] : span;
      events.push_back(
          {made.end, 2 * made.order + 1, rank, static_cast<int16_t>(map.rank(to)), send});
    }
  std::stable_sort(events.begin(), events.end());
  return events;
}

/// Inserts each transfer at the moment its data is computed.
Schedule with_early_transfers(const Schedule& schedule, const StageMap& map, const Plan& plan,
                              Costs costs) {
  costs.send = 0;  // a transfer of zero length never delays another action
  Simulated run = simulate(schedule, plan, costs);
  MT_USER_CHECK(run.faults.empty(), ErrorClass::config,
                cat("the schedule cannot run: ", join(run.faults, "; ")), "");
  Schedule out(schedule.size());
  for (const Event& event : events_of(run, map)) {
    out[static_cast<size_t>(event.rank)].push_back(event.action);
    if (event.receiver < 0) continue;
    bool forward = event.action.what == ActionKind::send_forward;
    auto stage = static_cast<int16_t>(event.action.stage + (forward ? 1 : -1));
    out[static_cast<size_t>(event.receiver)].push_back(
        {forward ? ActionKind::recv_forward : ActionKind::recv_backward, stage,
         event.action.micro});
  }
  return out;
}

}  // namespace

Schedule lower(Schedule schedule, const StageMap& map, const Costs& costs) {
  Plan plan{.stages = map.stages(), .micro_batches = check_places(schedule, map)};
  add_reduces(schedule);
  Schedule early = with_early_transfers(schedule, map, plan, costs);
  bool overlapped = false;  // with_rendezvous_transfers() does not support overlapped actions
  for (const Program& program : early)
    for (const Action& a : program) overlapped |= a.overlapped;
  if (overlapped || costs.transfer == TransferMode::asynchronous) return early;
  Schedule rendezvous = with_rendezvous_transfers(schedule, map, plan, costs);
  return simulate(rendezvous, plan, costs).makespan < simulate(early, plan, costs).makespan
             ? rendezvous
             : early;
}

}  // namespace mtrain
