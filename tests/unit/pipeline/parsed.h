// Schedules and their parts from texts, for tests.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "mtrain/base/text.h"
#include "mtrain/pipeline/schedule_text.h"
#include "mtrain/pipeline/simulate.h"
#include "mtrain/pipeline/stage_steps.h"

namespace mtrain {

inline Schedule schedule(std::string_view text) { return parse_schedule(text, "test"); }
/// The program of rank 0.
inline Program program(std::string_view text) { return schedule(text)[0]; }

/// Blocks 0 to `blocks` - 1 between embedding and head.
inline StageParts whole_model(int64_t blocks, bool experts = false) {
  StageParts parts = {{.name = "embed"}};
  for (int64_t i = 0; i < blocks; ++i)
    parts.push_back({.name = std::to_string(i), .block = true, .exchanges = experts});
  parts.push_back({.name = "head"});
  return parts;
}

/// The times of a schedule on one rank, which must be free of faults.
inline Simulated simulated(std::string_view text, const Costs& costs, int64_t micro_batches = 1) {
  Simulated out = simulate(schedule(text), {1, micro_batches}, costs);
  CHECK(join(out.faults, "\n") == "");
  return out;
}

}  // namespace mtrain
