// Static checks of a schedule: which rank runs each action, what is missing or duplicated, and the
// dependencies of each action. Value types; thread-safe. Used by the simulator.
#pragma once
#include <array>
#include <optional>

#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Identifies an action. R has micro-batch 0. Gather and Release have no key: they run in the
/// order of their rank's program.
struct Key {
  ActionKind what;
  int16_t stage;
  int32_t micro;
};

/// The number of kinds with a key: those before gather_params.
inline constexpr size_t kNumKeys = 9;
inline bool has_key(ActionKind what) { return static_cast<size_t>(what) < kNumKeys; }
inline bool is_compute(ActionKind what) { return what <= ActionKind::weight_grad; }
inline bool is_send(ActionKind what) {
  return what == ActionKind::send_forward || what == ActionKind::send_backward;
}
inline bool is_collective(ActionKind what) {
  return what == ActionKind::gather_params || what == ActionKind::reduce_scatter;
}
inline bool is_transfer(ActionKind what) {
  return what >= ActionKind::recv_forward && what <= ActionKind::send_backward;
}

struct Needs {
  std::array<Key, 3> keys{};
  std::array<bool, 3> implied_transfer{};  // the data comes from another rank, but the schedule has
                                           // no transfer actions
  size_t count = 0;
};

class ScheduleFacts {
 public:
  std::vector<std::string> faults;

  ScheduleFacts(const Schedule& schedule, const Plan& plan);

  size_t cells() const { return static_cast<size_t>(stages_ * micros_); }
  size_t cell(Key key) const { return static_cast<size_t>(key.stage * micros_ + key.micro); }
  /// The rank whose program contains the action; -1 if none does.
  int owner(Key key) const { return owner_[static_cast<size_t>(key.what)][cell(key)]; }
  /// True for an action that is invalid by itself and cannot run.
  bool skipped(size_t rank, size_t index) const {
    return !skip_[rank].empty() && skip_[rank][index];
  }
  /// True if the schedule has separate gradients of weights (W).
  bool split() const { return split_; }
  ActionKind last_backward() const {
    return split_ ? ActionKind::weight_grad : ActionKind::backward;
  }
  /// The action that a stage's R waits for, of each micro-batch.
  ActionKind last_of_micro_batch() const {
    return scatters_ ? ActionKind::reduce_scatter : last_backward();
  }
  /// The receive that matches a send, or the send that matches a receive.
  Key other_side(Key key) const;
  /// The actions that must be complete before an action other than R can begin. For a
  /// transfer, this does not include its other side.
  Needs needs(const Action& a) const;
  /// The first micro-batch of a stage whose last_of_micro_batch() is not done yet. `done`: end
  /// times, negative if not done.
  Key first_open(int16_t stage, const std::vector<double>& done) const;

 private:
  std::string fault_of(const Action& a) const;
  void register_actions(const Schedule& schedule);
  void find_missing();
  void check_params(const Schedule& schedule);
  void check_ranks();

  int64_t stages_, micros_;
  bool split_ = false, explicit_ = false;  // has W; has transfers
  bool scatters_ = false, gathers_ = false;
  std::array<std::vector<int16_t>, kNumKeys> owner_;
  std::vector<std::vector<bool>> skip_;
  std::vector<int16_t> rank_of_;  // by stage, -1 if it never runs forward
};

}  // namespace mtrain
