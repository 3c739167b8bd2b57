// ActionWalk: the times of the inner steps of a simulated action. Used by simulate.cc only. An
// object serves one simulation on one thread.
#pragma once
#include <map>
#include <vector>

#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// A rank's link, on which its collectives run one after the other.
struct RankLink {
  double free = 0;                 // when its last collective ends
  double reduced = 0;              // when its last reduction of gradients ends
  std::map<PartId, double> parts;  // when the parameters of a part are gathered
};

class ActionWalk {
 public:
  /// Without inner steps, the action only computes. `done` receives the collectives. Refers to all
  /// arguments but the action.
  ActionWalk(const Action& action, const InnerSteps& steps, const Costs& costs, bool split,
             RankLink& link, std::vector<TimedStep>& done, size_t index);

  /// Continues at `clock`, until an exchange has started (true) or the action is complete (false);
  /// moves `clock` to that time. The next call waits for the exchange.
  bool run(double& clock);

 private:
  void gather(const InnerStep& step, double& clock);
  void reduce(const InnerStep& step, double& clock);
  /// The time of a compute step.
  double time_of(const InnerStep& step) const;

  Action action_;
  const InnerSteps& steps_;
  const Costs& costs_;
  RankLink& link_;
  std::vector<TimedStep>& done_;
  size_t index_, at_ = 0;
  double compute_, per_block_ = 0;  // of the action, and of each of its blocks
  double pending_ = 0;              // when the exchange that has started ends
};

}  // namespace mtrain
