#include "mtrain/pipeline/schedule_check.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

constexpr int64_t kMaxCells = int64_t{1} << 22;
constexpr size_t kMaxFaults = 32;

Key key_of(const Action& a) { return {a.what, a.stage, a.micro}; }

}  // namespace

ScheduleFacts::ScheduleFacts(const Schedule& schedule, const Plan& plan)
    : stages_(plan.stages), micros_(plan.micro_batches) {
  MT_CHECK(stages_ >= 1 && stages_ <= INT16_MAX && micros_ >= 1, stages_, " stages, ", micros_,
           " micro-batches");
  MT_USER_CHECK(micros_ <= kMaxCells / stages_ && schedule.size() <= INT16_MAX, ErrorClass::config,
                cat(stages_, " stages x ", micros_, " micro-batches on ", schedule.size(),
                    " ranks are too many to check"),
                cat("use at most ", kMaxCells, " stages x micro-batches and 32767 ranks"));
  for (auto& owners : owner_) owners.assign(cells(), -1);
  for (const Program& program : schedule)
    for (const Action& a : program)
      split_ |= a.what == ActionKind::weight_grad, explicit_ |= is_transfer(a.what),
          scatters_ |= a.what == ActionKind::reduce_scatter,
          gathers_ |= a.what == ActionKind::gather_params;
  register_actions(schedule);
  find_missing();
  check_params(schedule);
  check_ranks();
}

void ScheduleFacts::register_actions(const Schedule& schedule) {
  skip_.resize(schedule.size());
  for (size_t r = 0; r < schedule.size(); ++r)
    for (size_t i = 0; i < schedule[r].size(); ++i) {
      const Action& a = schedule[r][i];
      std::string fault = fault_of(a);
      bool pair = a.what == ActionKind::forward && i + 1 < schedule[r].size() &&
                  schedule[r][i + 1].what == ActionKind::backward;
      if (fault.empty() && a.overlapped && !pair)
        fault = "has an overlapped action without a backward directly after it";
      if (fault.empty()) {
        if (has_key(a.what))
          owner_[static_cast<size_t>(a.what)][cell(key_of(a))] = static_cast<int16_t>(r);
        continue;
      }
      if (faults.size() < kMaxFaults)
        faults.push_back(cat("rank ", r, " ", fault, ": ", to_text(a)));
      skip_[r].resize(schedule[r].size());
      skip_[r][i] = true;
    }
}

std::string ScheduleFacts::fault_of(const Action& a) const {
  if (a.stage < 0 || a.stage >= stages_ || a.micro < 0 || a.micro >= micros_ ||
      (!has_micro_batch(a.what) && a.micro != 0))
    return "has a stage or micro-batch that does not exist";
  if (!has_key(a.what)) return "";
  bool first = a.stage == 0, last = a.stage + 1 == stages_;
  if ((first && (a.what == ActionKind::recv_forward || a.what == ActionKind::send_backward)) ||
      (last && (a.what == ActionKind::send_forward || a.what == ActionKind::recv_backward)))
    return "transfers to or from a stage that does not exist";
  return owner(key_of(a)) < 0 ? "" : "repeats an action";
}

void ScheduleFacts::find_missing() {
  struct Row {
    ActionKind what;
    const char* text;
  };
  for (int64_t s = 0; s < stages_; ++s) {
    auto stage = static_cast<int16_t>(s);
    for (const Row& row :
         {Row{ActionKind::forward, "forward"}, Row{ActionKind::backward, "backward"},
          Row{ActionKind::weight_grad, "weight gradients"},
          Row{ActionKind::reduce_scatter, "the reduce-scatter"}}) {
      if ((row.what == ActionKind::weight_grad && !split_) ||
          (row.what == ActionKind::reduce_scatter && !scatters_))
        continue;
      for (int64_t m = 0; m < micros_ && faults.size() < kMaxFaults; ++m)
        if (owner({row.what, stage, static_cast<int32_t>(m)}) < 0)
          faults.push_back(cat("stage ", s, " never runs ", row.text, " of ", m));
    }
    if (owner({ActionKind::reduce, stage, 0}) < 0 && faults.size() < kMaxFaults)
      faults.push_back(cat("stage ", s, " never reduces its gradients"));
  }
}

/// If the schedule has any Gather, every F and B must run between the Gather and the Release of its
/// stage, on the same rank.
void ScheduleFacts::check_params(const Schedule& schedule) {
  if (!gathers_) return;
  for (size_t r = 0; r < schedule.size(); ++r) {
    std::vector<bool> gathered(static_cast<size_t>(stages_));
    auto fault = [&](const auto&... text) {
      if (faults.size() < kMaxFaults) faults.push_back(cat("rank ", r, " ", text...));
    };
    for (size_t i = 0; i < schedule[r].size(); ++i) {
      const Action& a = schedule[r][i];
      if (skipped(r, i)) continue;
      auto stage = static_cast<size_t>(a.stage);
      if (a.what == ActionKind::gather_params) {
        if (gathered[stage]) fault("gathers parameters that are already gathered: ", to_text(a));
        gathered[stage] = true;
      } else if (a.what == ActionKind::release_params) {
        if (!gathered[stage]) fault("releases parameters that are not gathered: ", to_text(a));
        gathered[stage] = false;
      } else if (uses_params(a.what) && !gathered[stage]) {
        fault("runs ", to_text(a), " without gathered parameters of stage ", a.stage);
      }
    }
    for (size_t s = 0; s < gathered.size(); ++s)
      if (gathered[s]) fault("never releases the parameters of stage ", s);
  }
}

void ScheduleFacts::check_ranks() {
  rank_of_.assign(static_cast<size_t>(stages_), -1);
  for (int64_t s = 0; s < stages_; ++s) {
    int16_t& rank = rank_of_[static_cast<size_t>(s)];
    for (const auto& owners : owner_)
      for (size_t at = static_cast<size_t>(s * micros_), end = at + static_cast<size_t>(micros_);
           at < end; ++at) {
        if (rank < 0) rank = owners[at];
        if (owners[at] < 0 || owners[at] == rank || faults.size() >= kMaxFaults) continue;
        faults.push_back(cat("stage ", s, " runs on rank ", rank, " and on rank ", owners[at]));
        rank = owners[at];
      }
  }
  if (!explicit_) return;
  for (int64_t s = 0; s + 1 < stages_; ++s) {
    auto here = static_cast<size_t>(s);
    bool same = rank_of_[here] == rank_of_[here + 1];
    auto stage = static_cast<int16_t>(s);
    for (int32_t m = 0; m < micros_ && faults.size() < kMaxFaults; ++m)
      for (Key send : {Key{ActionKind::send_forward, stage, m},
                       Key{ActionKind::send_backward, static_cast<int16_t>(s + 1), m}})
        if (bool sent = owner(send) >= 0, received = owner(other_side(send)) >= 0;
            same && (sent || received))
          faults.push_back(cat("rank ", rank_of_[here], " transfers to itself: ",
                               to_text(Action{send.what, send.stage, m})));
  }
}

Key ScheduleFacts::other_side(Key key) const {
  auto stage = [&](int step) { return static_cast<int16_t>(key.stage + step); };
  switch (key.what) {
    case ActionKind::send_forward:
      return {ActionKind::recv_forward, stage(1), key.micro};
    case ActionKind::recv_forward:
      return {ActionKind::send_forward, stage(-1), key.micro};
    case ActionKind::send_backward:
      return {ActionKind::recv_backward, stage(-1), key.micro};
    case ActionKind::recv_backward:
      return {ActionKind::send_backward, stage(1), key.micro};
    default:
      return key;
  }
}

Needs ScheduleFacts::needs(const Action& a) const {
  Needs out;
  auto add = [&](ActionKind what, int stage, bool implied = false) {
    out.implied_transfer[out.count] = implied;
    out.keys[out.count++] = {what, static_cast<int16_t>(stage), a.micro};
  };
  // Data of another stage: that stage's own action if it is on the same rank, a transfer otherwise.
  auto from = [&](ActionKind made, int stage, ActionKind received, ActionKind sent) {
    bool same = rank_of_[static_cast<size_t>(a.stage)] == rank_of_[static_cast<size_t>(stage)];
    if (same || !explicit_) return add(made, stage, !same);
    add(received, a.stage);
    add(sent, stage);
  };
  switch (a.what) {
    case ActionKind::forward:
      if (a.stage > 0)
        from(ActionKind::forward, a.stage - 1, ActionKind::recv_forward, ActionKind::send_forward);
      break;
    case ActionKind::backward:
      add(ActionKind::forward, a.stage);
      if (a.stage + 1 < stages_)
        from(ActionKind::backward, a.stage + 1, ActionKind::recv_backward,
             ActionKind::send_backward);
      break;
    case ActionKind::weight_grad:
    case ActionKind::send_backward:
      add(ActionKind::backward, a.stage);
      break;
    case ActionKind::send_forward:
      add(ActionKind::forward, a.stage);
      break;
    case ActionKind::reduce_scatter:
      add(last_backward(), a.stage);
      break;
    default:
      break;
  }
  return out;
}

Key ScheduleFacts::first_open(int16_t stage, const std::vector<double>& done) const {
  Key key{last_of_micro_batch(), stage, 0};
  while (key.micro + 1 < micros_ && done[cell(key)] >= 0) ++key.micro;
  return key;
}

}  // namespace mtrain
