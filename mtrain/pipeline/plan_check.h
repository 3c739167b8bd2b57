// Requirements of every generator on its plan. Stateless; thread-safe.
#pragma once
#include <string_view>

#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Throws Error(config) unless the plan's numbers are consistent and, if `virtual_stages` is not 0,
/// the plan has that many stages per rank.
void check_plan(const Plan& plan, std::string_view name, int64_t virtual_stages);

/// An action from 64-bit stage and micro-batch numbers; check_plan() has ensured that they fit.
inline Action action(ActionKind what, int64_t stage, int64_t micro) {
  return {what, static_cast<int16_t>(stage), static_cast<int32_t>(micro)};
}

}  // namespace mtrain
