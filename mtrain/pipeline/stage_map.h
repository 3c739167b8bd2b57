// Which rank of the pipeline holds which stage. Stages are numbered in the order of forward. A
// value type; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API StageMap {
 public:
  /// Round-robin: stage s is on rank s % ranks.
  static StageMap looping(int64_t ranks, int64_t virtual_stages = 1);
  /// V shape: two stages per rank, s and 2*ranks-1-s. The first rank holds both ends of the model.
  static StageMap v_shape(int64_t ranks);

  /// Arbitrary: the rank of each stage.
  static StageMap by_stage(int64_t ranks, std::vector<int64_t> rank_of);

  int64_t ranks() const { return ranks_; }
  int64_t stages() const { return static_cast<int64_t>(rank_of_.size()); }
  /// REQUIRES: 0 <= stage < stages().
  int64_t rank(int64_t stage) const { return rank_of_[static_cast<size_t>(stage)]; }
  /// The stages of one rank, in ascending order.
  std::vector<int64_t> stages_of(int64_t rank) const;

 private:
  StageMap(int64_t ranks, int64_t stages);
  int64_t ranks_;
  std::vector<int64_t> rank_of_;
};

}  // namespace mtrain
