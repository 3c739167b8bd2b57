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
  struct Stage {
    int64_t first_step;  // steps finished before the first one with this size
    int64_t samples;     // of one step, over all ranks
  };
  /// The same size at every step.
  static BatchSchedule constant(int64_t samples) { return BatchSchedule({{0, samples}}); }
  /// Parses items "first_step:samples": the first one has step 0, and steps ascend. If an item is
  /// invalid, `fault` says which and why, and the result has batch size 1.
  static BatchSchedule parse(std::span<const std::string> items, std::string& fault);

  const std::vector<Stage>& stages() const { return stages_; }
  /// The batch size of the step after `finished` steps.
  int64_t samples_at(int64_t finished) const;
  /// The total number of samples of the first `steps` steps.
  int64_t samples_until(int64_t steps) const;
  /// The smallest number of steps with at least `samples` samples.
  double steps_for(double samples) const;
  int64_t largest() const;
  /// The greatest common divisor of all sizes.
  int64_t common_divisor() const;
  /// "256", or "256, from step 2001 on 1024".
  std::string text() const;

 private:
  explicit BatchSchedule(std::vector<Stage> stages) : stages_(std::move(stages)) {}
  std::vector<Stage> stages_;  // not empty
};

}  // namespace mtrain
