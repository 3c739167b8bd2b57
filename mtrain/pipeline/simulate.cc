#include "mtrain/pipeline/simulate.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/action_walk.h"
#include "mtrain/pipeline/schedule_check.h"

namespace mtrain {
namespace {

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Plan& plan, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        facts_(schedule, plan),
        next_(schedule.size()),
        clock_(schedule.size()),
        links_(schedule.size()),
        lists_(schedule.size()),
        gathered_(static_cast<size_t>(plan.stages)),
        open_(static_cast<size_t>(plan.stages), plan.micro_batches) {
    for (auto& times : done_) times.assign(facts_.cells(), -1);
    report_.faults = facts_.faults;
    report_.timeline.resize(schedule.size());
    report_.collectives.resize(schedule.size());
    if (costs.steps.has_collectives())
      for (size_t r = 0; r < schedule.size(); ++r)
        lists_[r] = expand_steps(schedule[r], costs.steps);
    report_.busy.resize(schedule.size()), report_.peak.resize(schedule.size());
    waiting_.assign(kNumKeys * facts_.cells(), -1);
  }

  Simulated run() {
    std::vector<size_t> ready;
    for (size_t r = schedule_.size(); r-- > 0;) ready.push_back(r);
    while (!ready.empty()) {
      size_t rank = ready.back();
      ready.pop_back();
      while (next_[rank] < schedule_[rank].size() && advance(rank, ready)) {
      }
    }
    for (size_t r = 0; r < schedule_.size(); ++r)
      if (next_[r] < schedule_[r].size()) report_deadlock(r);
    measure();
    return std::move(report_);
  }

 private:
  double& done(Key key) { return done_[static_cast<size_t>(key.what)][facts_.cell(key)]; }
  Action at(size_t rank) const { return schedule_[rank][next_[rank]]; }

  /// Runs the next action of a rank, or records what it waits for. Ranks that waited for the action
  /// become ready.
  bool advance(size_t rank, std::vector<size_t>& ready) {
    const Action a = at(rank);
    if (facts_.skipped(rank, next_[rank])) return ++next_[rank], true;
    double start = clock_[rank];
    if (auto missing = missing_for_next(rank, start)) {
      waiting_[static_cast<size_t>(missing->what) * facts_.cells() + facts_.cell(*missing)] =
          static_cast<int16_t>(rank);
      return false;
    }
    if (is_transfer(a.what) && costs_.transfer == TransferMode::rendezvous)
      return run_rendezvous(rank, ready);
    if (a.overlapped) return run_pair(rank, start, ready);
    if (a.what == ActionKind::gather_params) {
      run_gather(rank, start);
    } else if (has_steps(a.what)) {
      ActionWalk walk = walk_of(rank, next_[rank]);
      double clock = start;
      while (walk.run(clock)) {
      }
      if (!is_compute(a.what)) clock = std::max(clock, links_[rank].reduced);  // Scatter and R
      finish(rank, start, clock);
    } else {
      finish(rank, start, start + costs_.occupying(a, facts_.split()));
    }
    if (has_key(a.what)) wake({a.what, a.stage, a.micro}, ready);
    return true;
  }

  /// A rank's collectives run one after the other.
  void run_gather(size_t rank, double start) {
    const Action a = at(rank);
    RankLink& link = links_[rank];
    double end = std::max(start, link.free) + costs_.of(a.stage).gather;
    link.free = gathered_[static_cast<size_t>(a.stage)] = end;
    finish(rank, start, end);
    if (costs_.overlap_gathers) clock_[rank] = start;
  }

  /// The first missing dependency of a rank's next action, and of the backward that it overlaps
  /// with.
  std::optional<Key> missing_for_next(size_t rank, double& start) {
    const Action a = at(rank);
    if (auto missing = missing_need(a, start); missing || !a.overlapped) return missing;
    return missing_need(schedule_[rank][next_[rank] + 1], start);
  }

  /// Two overlapped actions: the results of both are available when both are complete.
  bool run_pair(size_t rank, double start, std::vector<size_t>& ready) {
    const Action forward = at(rank), backward = schedule_[rank][next_[rank] + 1];
    ActionWalk one = walk_of(rank, next_[rank]), other = walk_of(rank, next_[rank] + 1);
    double middle = start + costs_.computing(forward, facts_.split()), end = start;
    for (bool more = true, others_more = true; more || others_more;) {
      more = more && one.run(end);
      others_more = others_more && other.run(end);
    }
    finish(rank, start, middle);
    finish(rank, middle, end);
    done({forward.what, forward.stage, forward.micro}) = end;
    for (const Action& a : {forward, backward}) wake({a.what, a.stage, a.micro}, ready);
    return true;
  }

  /// The first dependency of `a` that is not complete; moves `start` to the time when all are.
  std::optional<Key> missing_need(const Action& a, double& start) {
    if (a.what == ActionKind::reduce) {
      if (open_[static_cast<size_t>(a.stage)] == 0) return {};
      return facts_.first_open(a.stage, done_[static_cast<size_t>(facts_.last_of_micro_batch())]);
    }
    if (uses_params(a.what)) start = std::max(start, gathered_[static_cast<size_t>(a.stage)]);
    Needs needs = facts_.needs(a);
    for (size_t i = 0; i < needs.count; ++i) {
      Key need = needs.keys[i];
      double when = done(need);
      if (when < 0) return need;
      bool under_way = is_send(need.what) && costs_.transfer == TransferMode::asynchronous;
      if (under_way || needs.implied_transfer[i]) when += costs_.send;
      start = std::max(start, when);
    }
    return {};
  }

  /// A rank has reached its side of a transfer. If the other rank has reached the other side, the
  /// data is transferred; otherwise the rank waits.
  bool run_rendezvous(size_t rank, std::vector<size_t>& ready) {
    const Action a = at(rank);
    Key here{a.what, a.stage, a.micro}, there = facts_.other_side(here);
    int other = facts_.owner(there);
    bool reached =
        other >= 0 &&
        next_[static_cast<size_t>(other)] < schedule_[static_cast<size_t>(other)].size() &&
        at(static_cast<size_t>(other)) == Action{there.what, there.stage, there.micro};
    if (!reached || missing_need_of(there))
      return false;  // the transfer runs when the other rank reaches its side
    auto partner = static_cast<size_t>(other);
    double end = std::max(clock_[rank], clock_[partner]) + costs_.send;
    finish(rank, clock_[rank], end);
    finish(partner, clock_[partner], end);
    ready.push_back(partner);
    return true;
  }

  bool missing_need_of(Key key) {
    double start = 0;
    return missing_need({key.what, key.stage, key.micro}, start).has_value();
  }

  void finish(size_t rank, double start, double end) {
    const Action a = at(rank);
    if (has_key(a.what)) done({a.what, a.stage, a.micro}) = end;
    clock_[rank] = end;
    report_.timeline[rank].push_back({a, start, end, next_[rank], order_++});
    if (a.what == facts_.last_of_micro_batch()) --open_[static_cast<size_t>(a.stage)];
    ++next_[rank];
  }

  void wake(Key key, std::vector<size_t>& ready) {
    int16_t& waiter = waiting_[static_cast<size_t>(key.what) * facts_.cells() + facts_.cell(key)];
    if (waiter >= 0) ready.push_back(static_cast<size_t>(waiter));
    waiter = -1;
  }

  ActionWalk walk_of(size_t rank, size_t position) {
    static const InnerSteps none;
    size_t action = report_.timeline[rank].size() + (position - next_[rank]);
    const InnerSteps& steps = lists_[rank].empty() ? none : lists_[rank][position];
    return {schedule_[rank][position], steps, costs_, facts_.split(), links_[rank],
            report_.collectives[rank], action};
  }

  void report_deadlock(size_t rank) {
    const Action a = at(rank);
    double start = 0;
    auto need = missing_for_next(rank, start);
    if (!need && is_transfer(a.what)) need = facts_.other_side({a.what, a.stage, a.micro});
    std::string text = cat("rank ", rank, " waits forever at ", to_text(a));
    if (need) {
      int owner = facts_.owner(*need);
      text += cat(" for ", to_text(Action{need->what, need->stage, need->micro}));
      if (owner < 0)
        text += ", which no rank runs";
      else if (static_cast<size_t>(owner) == rank)
        text += ", which comes later in its program";
      else
        text += cat(" of rank ", owner);
    }
    report_.faults.push_back(std::move(text));
  }

  void measure() {
    double busy = 0;
    for (size_t r = 0; r < schedule_.size(); ++r) {
      int64_t live = 0;
      double held = 0;
      for (const TimedAction& span : report_.timeline[r]) {
        const StageCosts& c = costs_.of(span.action.stage);
        report_.busy[r] += costs_.computing(span.action, facts_.split());
        if (!lists_[r].empty())
          for (const InnerStep& step : lists_[r][span.position]) {
            bool block = costs_.steps.part(step.part).block;
            double params = block ? costs_.of(step.part.stage).block_params : 0;
            if (step.what == InnerStepKind::gather) held += params;
            report_.peak[r] = std::max(report_.peak[r], held);
            if (step.what == InnerStepKind::release) held -= params;
          }
        if (span.action.what == ActionKind::forward) ++live, held += c.activation;
        if (span.action.what == ActionKind::gather_params) held += c.params;
        if (span.action.what == ActionKind::release_params) held -= c.params;
        report_.peak_activations = std::max(report_.peak_activations, live);
        if (span.action.what == facts_.last_backward())
          --live, held -= facts_.split() ? c.kept : c.activation;
        else if (span.action.what == ActionKind::backward)
          held += c.kept - c.activation;
        report_.peak[r] = std::max(report_.peak[r], held);
      }
      busy += report_.busy[r];
      report_.makespan = std::max({report_.makespan, clock_[r], links_[r].free});
    }
    if (report_.makespan > 0)
      report_.bubble = 1 - busy / (report_.makespan * static_cast<double>(schedule_.size()));
  }

  const Schedule& schedule_;
  const Costs& costs_;
  ScheduleFacts facts_;
  std::vector<size_t> next_;
  std::vector<double> clock_;
  std::vector<RankLink> links_;
  std::vector<InnerStepLists> lists_;  // by rank; empty if F and B only compute
  std::vector<double> gathered_;       // by stage: when its parameters are gathered
  std::vector<int64_t> open_;          // by stage: micro-batches whose last backward has not run
  std::vector<double> done_[kNumKeys];
  std::vector<int16_t> waiting_;  // by ActionKind and cell: the rank that waits for it
  int64_t order_ = 0;
  Simulated report_;
};

}  // namespace

double Costs::computing(const Action& a, bool split) const {
  const StageCosts& c = of(a.stage);
  switch (a.what) {
    case ActionKind::forward:
      return c.forward;
    case ActionKind::backward:
      return split ? c.backward : c.backward + c.weights;
    case ActionKind::weight_grad:
      return c.weights;
    default:
      return 0;
  }
}

double Costs::occupying(const Action& a, bool split) const {
  const StageCosts& c = of(a.stage);
  if (a.what == ActionKind::gather_params) return overlap_gathers ? 0 : c.gather;
  return computing(a, split);
}

Simulated simulate(const Schedule& schedule, const Plan& plan, const Costs& costs) {
  MT_CHECK(costs.stages.empty() || costs.stages.size() == static_cast<size_t>(plan.stages),
           "costs of ", costs.stages.size(), " stages for a plan of ", plan.stages);
  return Simulation(schedule, plan, costs).run();
}

}  // namespace mtrain
