// A schedule with one action dropped, doubled, moved to another rank or swapped is a fault, unless
// a slow second implementation of the rules, which shares nothing with the simulator, can run it as
// well.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/pipeline/lower.h"

namespace mtrain {
namespace {

/// Runs one action of any rank at a time as long as one can run, with transfers as rendezvous of
/// two ranks.
class SlowRun {
 public:
  SlowRun(Schedule schedule, const Plan& plan, const StageMap& map)
      : left_(std::move(schedule)), plan_(plan), map_(map) {
    for (const Program& program : left_)
      for (const Action& a : program) {
        splits_ |= a.what == ActionKind::weight_grad;
        lowered_ |= a.what == ActionKind::send_forward || a.what == ActionKind::send_backward ||
                    a.what == ActionKind::recv_forward || a.what == ActionKind::recv_backward;
      }
  }

  bool sound() {
    while (step()) {
    }
    for (const Program& program : left_)
      if (!program.empty()) return false;
    size_t wanted =
        static_cast<size_t>(plan_.stages * (plan_.micro_batches * (splits_ ? 3 : 2) + 1));
    size_t transfers = 0;
    for (int64_t s = 0; lowered_ && s + 1 < plan_.stages; ++s)
      if (map_.rank(s) != map_.rank(s + 1))
        transfers += static_cast<size_t>(4 * plan_.micro_batches);
    return done_.size() == wanted + transfers;
  }

 private:
  std::string name(int64_t stage, const char* what, int64_t micro) const {
    return cat(stage, what, micro);
  }

  bool step() {
    for (size_t r = 0; r < left_.size(); ++r) {
      if (left_[r].empty()) continue;
      Action a = left_[r].front();
      if (done_.contains(to_text(a)) || map_.rank(a.stage) != static_cast<int64_t>(r)) continue;
      if (can_compute(a)) return finish(r), true;
      bool x = a.what == ActionKind::send_forward, g = a.what == ActionKind::send_backward;
      if (!x && !g) continue;
      if (!done_.contains(name(a.stage, x ? "F" : "B", a.micro))) continue;
      auto to = static_cast<int16_t>(a.stage + (x ? 1 : -1));
      if (to < 0 || to >= plan_.stages) continue;
      auto receiver = static_cast<size_t>(map_.rank(to));
      if (receiver == r || left_[receiver].empty()) continue;
      if (left_[receiver].front() !=
          Action{x ? ActionKind::recv_forward : ActionKind::recv_backward, to, a.micro})
        continue;
      return finish(r), finish(receiver), true;
    }
    return false;
  }

  bool arrived(int64_t stage, int64_t from, const char* made, const char* received,
               int64_t micro) const {
    if (from < 0 || from >= plan_.stages) return true;
    bool local = !lowered_ || map_.rank(from) == map_.rank(stage);
    return done_.contains(local ? name(from, made, micro) : name(stage, received, micro));
  }

  bool can_compute(const Action& a) const {
    switch (a.what) {
      case ActionKind::forward:
        return arrived(a.stage, a.stage - 1, "F", "RecvX", a.micro);
      case ActionKind::backward:
        return done_.contains(name(a.stage, "F", a.micro)) &&
               arrived(a.stage, a.stage + 1, "B", "RecvG", a.micro);
      case ActionKind::weight_grad:
        return done_.contains(name(a.stage, "B", a.micro));
      case ActionKind::reduce:
        for (int64_t m = 0; m < plan_.micro_batches; ++m)
          if (!done_.contains(name(a.stage, splits_ ? "W" : "B", m))) return false;
        return true;
      default:
        return false;
    }
  }

  void finish(size_t rank) {
    done_.insert(to_text(left_[rank].front()));
    left_[rank].erase(left_[rank].begin());
  }

  Schedule left_;
  const Plan& plan_;
  const StageMap& map_;
  bool splits_ = false, lowered_ = false;
  std::set<std::string> done_;
};

struct Mutant {
  Schedule schedule;
  std::string what;
};

Mutant mutate(Schedule s, std::mt19937& random) {
  auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  size_t rank = pick(s.size());
  Program& program = s[rank];
  size_t at = pick(program.size());
  std::string text = cat(" rank ", rank, ", action ", at, " ", to_text(program[at]));
  auto where = [&](size_t i) { return program.begin() + static_cast<ptrdiff_t>(i); };
  switch (pick(4)) {
    case 0:
      program.erase(where(at));
      return {std::move(s), "drop" + text};
    case 1:
      program.insert(where(pick(program.size() + 1)), Action(program[at]));
      return {std::move(s), "double" + text};
    case 2: {
      Action a = program[at];
      program.erase(where(at));
      Program& other = s[(rank + 1) % s.size()];
      other.insert(other.begin() + static_cast<ptrdiff_t>(pick(other.size() + 1)), a);
      return {std::move(s), "move" + text};
    }
    default: {
      size_t with = pick(program.size());
      text += cat(" with action ", with, " ", to_text(program[with]));
      std::swap(program[at], program[with]);
      return {std::move(s), "swap" + text};
    }
  }
}

struct Case {
  const char* name;
  Plan plan;
};

const Case kCases[] = {{"gpipe", {3, 3}},
                       {"1f1b", {2, 2}},
                       {"1f1b", {4, 6}},
                       {"interleaved", {6, 6, 2}},
                       {"interleaved", {4, 5, 2, 3}},
                       {"zb_h1", {3, 4}},
                       {"zb_v", {6, 5, 2}}};

TEST_CASE("mutations: the simulator and a slow second implementation agree on every schedule") {
  std::mt19937 random(7);
  std::map<std::string, std::pair<int, int>> found;  // kind of mutation to faults, mutants
  for (const Case& c : kCases) {
    StageMap map = stage_map(c.name, c.plan);
    Schedule plain = make_schedule(c.name, c.plan), lowered = lower(plain, map);
    for (const Schedule& schedule : {plain, lowered}) {
      REQUIRE(SlowRun(schedule, c.plan, map).sound());
      for (int i = 0; i < 400; ++i) {
        Mutant mutant = mutate(schedule, random);
        INFO(std::string(c.name), ": ", mutant.what);
        Simulated run =
            simulate(mutant.schedule, c.plan, {.stages = {}, .transfer = TransferMode::rendezvous});
        bool sound = SlowRun(mutant.schedule, c.plan, map).sound();
        CHECK(run.faults.empty() == sound);
        std::string kind = mutant.what.substr(0, mutant.what.find(' '));
        ++found[kind].second;
        if (!run.faults.empty()) ++found[kind].first;
      }
    }
  }
  for (const char* kind : {"drop", "double", "move"}) {
    INFO(std::string(kind));
    CHECK(found[kind].second > 1000);
    CHECK(found[kind].first == found[kind].second);  // without exception
  }
  CHECK(found["swap"].second > 1000);
  CHECK(found["swap"].first * 10 >
        found["swap"].second * 6);  // some orders may be exchanged, most may not
}

TEST_CASE("mutations: the swaps that can never be right") {
  for (const Case& c : kCases) {
    INFO(std::string(c.name));
    Schedule lowered = lower(make_schedule(c.name, c.plan), stage_map(c.name, c.plan));
    for (size_t r = 0; r < lowered.size(); ++r)
      for (auto [first, second] : {std::pair{ActionKind::forward, ActionKind::backward},
                                   {ActionKind::backward, ActionKind::weight_grad},
                                   {ActionKind::recv_forward, ActionKind::forward},
                                   {ActionKind::forward, ActionKind::send_forward},
                                   {ActionKind::recv_backward, ActionKind::backward},
                                   {ActionKind::backward, ActionKind::send_backward},
                                   {ActionKind::weight_grad, ActionKind::reduce}}) {
        Schedule spoilt = lowered;
        for (Action& a : spoilt[r])
          for (Action& b : spoilt[r])
            if (a.what == first && b.what == second && a.stage == b.stage && a.micro == 0 &&
                b.micro == 0)
              std::swap(a, b);
        if (spoilt == lowered) continue;
        for (TransferMode transfer : {TransferMode::asynchronous, TransferMode::rendezvous})
          CHECK_FALSE(
              simulate(spoilt, c.plan, {.stages = {}, .transfer = transfer}).faults.empty());
      }
  }
}

}  // namespace
}  // namespace mtrain
