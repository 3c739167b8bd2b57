#include "mtrain/pipeline/forward_only.h"

#include <algorithm>

#include "mtrain/pipeline/plan_check.h"

namespace mtrain {

Schedule forward_only(const StageMap& map, int64_t micro_batches) {
  Schedule schedule(static_cast<size_t>(map.ranks()));
  auto apart = [&](int64_t s) {
    return s >= 0 && s + 1 < map.stages() && map.rank(s) != map.rank(s + 1);
  };
  for (int64_t first = 0; first < micro_batches; first += map.ranks())
    for (int64_t s = 0; s < map.stages(); ++s)
      for (int64_t m = first; m < std::min(first + map.ranks(), micro_batches); ++m) {
        Program& program = schedule[static_cast<size_t>(map.rank(s))];
        if (apart(s - 1)) program.push_back(action(ActionKind::recv_forward, s, m));
        program.push_back(action(ActionKind::forward, s, m));
        if (apart(s)) program.push_back(action(ActionKind::send_forward, s, m));
      }
  return schedule;
}

}  // namespace mtrain
