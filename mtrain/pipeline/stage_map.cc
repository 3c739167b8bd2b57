#include "mtrain/pipeline/stage_map.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain {

StageMap::StageMap(int64_t ranks, int64_t stages) : ranks_(ranks) {
  MT_CHECK(ranks >= 1 && stages >= ranks && stages <= INT16_MAX, ranks, " ranks, ", stages,
           " stages");
  rank_of_.resize(static_cast<size_t>(stages));
}

StageMap StageMap::looping(int64_t ranks, int64_t virtual_stages) {
  MT_CHECK(ranks <= INT16_MAX && virtual_stages <= INT16_MAX, ranks, " ranks x ", virtual_stages);
  StageMap map(ranks, ranks * virtual_stages);
  for (int64_t s = 0; s < map.stages(); ++s) map.rank_of_[static_cast<size_t>(s)] = s % ranks;
  return map;
}

StageMap StageMap::v_shape(int64_t ranks) {
  MT_CHECK(ranks <= INT16_MAX, ranks, " ranks");
  StageMap map(ranks, 2 * ranks);
  for (int64_t s = 0; s < map.stages(); ++s)
    map.rank_of_[static_cast<size_t>(s)] = std::min(s, 2 * ranks - 1 - s);
  return map;
}

StageMap StageMap::by_stage(int64_t ranks, std::vector<int64_t> rank_of) {
  StageMap map(ranks, static_cast<int64_t>(rank_of.size()));
  for (int64_t rank : rank_of) MT_CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  map.rank_of_ = std::move(rank_of);
  return map;
}

std::vector<int64_t> StageMap::stages_of(int64_t rank) const {
  std::vector<int64_t> out;
  for (int64_t s = 0; s < stages(); ++s)
    if (this->rank(s) == rank) out.push_back(s);
  return out;
}

}  // namespace mtrain
