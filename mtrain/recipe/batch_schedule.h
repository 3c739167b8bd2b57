// BatchSchedule: train.batch_schedule, the global batch size as a function of the step. A value.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API BatchSchedule {
 public:
  struct Period {
    int64_t steps_before;  // the number of steps before the first one with this size
    int64_t samples;       // of one step, over all ranks
  };
  /// The same size at every step.
  static BatchSchedule constant(int64_t samples) { return BatchSchedule({{0, samples}}); }
  /// Parses items "finished_steps:samples": the first one has 0 finished steps, and the numbers
  /// ascend. If an item is invalid, `fault` says which and why, and the result has batch size 1.
  static BatchSchedule parse(std::span<const std::string> items, std::string& fault);

  const std::vector<Period>& periods() const { return periods_; }
  /// The batch size of the step after `finished` steps.
  int64_t samples_at(int64_t finished) const;
  /// The total number of samples of the first `steps` steps.
  int64_t samples_until(int64_t steps) const;
  /// The smallest number of steps with at least `samples` samples.
  double steps_for(double samples) const;
  int64_t largest() const;
  int64_t smallest() const;
  /// The greatest common divisor of all sizes.
  int64_t common_divisor() const;
  /// "256", or "256, from step 2001 on 1024".
  std::string text() const;

 private:
  explicit BatchSchedule(std::vector<Period> periods) : periods_(std::move(periods)) {}
  std::vector<Period> periods_;  // not empty
};

}  // namespace mtrain
