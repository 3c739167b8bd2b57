// What every generator asks of its plan. Stateless.
#pragma once
#include <string_view>

#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Throws unless the plan has numbers that fit together and, when `virtual_stages` is not 0, so
/// many stages per rank.
void check_plan(const Plan& plan, std::string_view name, int64_t virtual_stages);

/// An action of stage and micro-batch counted in 64 bits; check_plan() has made sure that they fit.
inline Action action(ActionKind what, int64_t stage, int64_t micro) {
  return {what, static_cast<int16_t>(stage), static_cast<int32_t>(micro)};
}

}  // namespace mtrain
