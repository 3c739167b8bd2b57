#include "mtrain/pipeline/schedule.h"

#include <algorithm>
#include <map>

#include "mtrain/base/text.h"

namespace mtrain {

Schedule one_f_one_b(const Plan& plan) {
  Schedule schedule;
  for (int64_t s = 0; s < plan.stages; ++s) {
    auto stage = static_cast<int16_t>(s);
    Program program;
    int64_t warmup = std::min(plan.micro_batches, plan.stages - 1 - s), forward = 0, backward = 0;
    for (; forward < warmup; ++forward) program.push_back({Do::F, stage, static_cast<int32_t>(forward)});
    for (; forward < plan.micro_batches; ++forward) {
      program.push_back({Do::F, stage, static_cast<int32_t>(forward)});
      program.push_back({Do::B, stage, static_cast<int32_t>(backward++)});
    }
    for (; backward < plan.micro_batches; ++backward) program.push_back({Do::B, stage, static_cast<int32_t>(backward)});
    program.push_back({Do::Reduce, stage, 0});
    schedule.push_back(std::move(program));
  }
  return schedule;
}

std::string to_text(const Action& action) {
  switch (action.what) {
    case Do::F: return cat(action.stage, "F", action.micro);
    case Do::B: return cat(action.stage, "B", action.micro);
    case Do::Reduce: return cat(action.stage, "R");
  }
  return "?";
}

std::string to_text(const Program& program) {
  std::vector<std::string> parts;
  for (const auto& action : program) parts.push_back(to_text(action));
  return join(parts, " ");
}

namespace {

// Runs every rank's next action as soon as what it waits for is done, keeping each rank's clock.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const Plan& plan) : schedule_(schedule), plan_(plan), next_(schedule.size()), clock_(schedule.size()) {}

  Simulated run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < schedule_.size(); ++r)
        while (next_[r] < schedule_[r].size() && advance(r)) moved = true;
    }
    double end = 0;
    for (size_t r = 0; r < schedule_.size(); ++r) {
      if (next_[r] < schedule_[r].size())
        report_.faults.push_back(cat("rank ", r, " waits for ever at ", to_text(schedule_[r][next_[r]])));
      end = std::max(end, clock_[r]);
    }
    for (int64_t s = 0; s < plan_.stages; ++s) {
      for (int64_t m = 0; m < plan_.micro_batches; ++m)
        if (!done_.contains({Do::B, s, m})) report_.faults.push_back(cat("stage ", s, " never runs backward of ", m));
      if (!done_.contains({Do::Reduce, s, 0})) report_.faults.push_back(cat("stage ", s, " never reduces its gradients"));
    }
    double busy = 3.0 * static_cast<double>(plan_.micro_batches);
    report_.bubble = end > 0 ? 1 - busy / end : 0;
    return report_;
  }

 private:
  using Key = std::tuple<Do, int64_t, int64_t>;

  bool advance(size_t rank) {
    const Action& a = schedule_[rank][next_[rank]];
    if (std::string wrong = fault_of(a); !wrong.empty()) {
      report_.faults.push_back(cat("rank ", rank, " ", wrong, ": ", to_text(a)));
      ++next_[rank];
      return true;
    }
    double start = clock_[rank];
    for (const Key& need : needs(a)) {
      auto found = done_.find(need);
      if (found == done_.end()) return false;
      start = std::max(start, found->second);
    }
    clock_[rank] = start + cost(a.what);
    done_[{a.what, a.stage, a.micro}] = clock_[rank];
    if (a.what != Do::Reduce) live_[rank] += a.what == Do::F ? 1 : -1;
    report_.peak_activations = std::max(report_.peak_activations, live_[rank]);
    ++next_[rank];
    return true;
  }

  static double cost(Do what) {
    switch (what) {
      case Do::F: return 1;
      case Do::B: return 2;
      case Do::Reduce: return 0;
    }
    return 0;
  }

  std::string fault_of(const Action& a) const {
    bool exists = a.stage >= 0 && a.stage < plan_.stages && a.micro >= 0 && a.micro < plan_.micro_batches;
    if (!exists) return "names a stage or micro-batch that is not there";
    return done_.contains({a.what, a.stage, a.micro}) ? "repeats an action" : "";
  }

  std::vector<Key> needs(const Action& a) const {
    std::vector<Key> keys;
    if (a.what == Do::Reduce)
      for (int64_t m = 0; m < plan_.micro_batches; ++m) keys.push_back({Do::B, a.stage, m});
    if (a.what == Do::F && a.stage > 0) keys.push_back({Do::F, a.stage - 1, a.micro});
    if (a.what == Do::B) keys.push_back({Do::F, a.stage, a.micro});
    if (a.what == Do::B && a.stage + 1 < plan_.stages) keys.push_back({Do::B, a.stage + 1, a.micro});
    return keys;
  }

  const Schedule& schedule_;
  const Plan& plan_;
  std::vector<size_t> next_;
  std::vector<double> clock_;
  std::map<size_t, int64_t> live_;
  std::map<Key, double> done_;
  Simulated report_;
};

}  // namespace

Simulated simulate(const Schedule& schedule, const Plan& plan) { return Simulation(schedule, plan).run(); }

}  // namespace mtrain
