// A training step as data: which stage runs forward or backward of which micro-batch, in what order. Schedules are plain,
// printable lists made by pure functions; the interpreter runs them, the planner only looks at them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

enum class Do : uint8_t { F, B, Reduce };  // forward, backward, reduction of the stage's gradients

struct Action {
  Do what;
  int16_t stage;
  int32_t micro;
  bool operator==(const Action&) const = default;
};
using Program = std::vector<Action>;      // of one rank
using Schedule = std::vector<Program>;    // of all ranks

struct Plan {
  int64_t stages = 1;
  int64_t micro_batches = 1;
};

/// One forward, one backward in the steady state (Narayanan et al. 2021, arXiv:2104.04473): stage s warms up with
/// stages-1-s forwards. With one stage this is plain gradient accumulation: F0 B0 F1 B1 … Reduce.
MT_API Schedule one_f_one_b(const Plan& plan);

/// "0F3" = stage 0, forward, micro-batch 3.
MT_API std::string to_text(const Action& action);
MT_API std::string to_text(const Program& program);

/// What running a schedule would do: faults (actions that wait for ever, repeat, are missing or name what is not there) and
/// costs.
struct Simulated {
  std::vector<std::string> faults;
  double bubble = 0;           // share of idle time, with backward costing twice forward
  int64_t peak_activations = 0;  // most micro-batches alive on one rank
};
MT_API Simulated simulate(const Schedule& schedule, const Plan& plan);

}  // namespace mtrain
