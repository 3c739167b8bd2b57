// From a recipe's `dist` section to the two meshes of a run: the dense one, and the one of the
// experts over the same ranks ("parallel folding": attention and experts are cut independently).
// Follows Megatron's rank order. Stateless.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

/// How many ranks there are, and how they are cut.
struct RankGrid {
  int64_t world_size = 1;
  int64_t tp = 1, pp = 1, cp = 1;  // tensor, pipeline, context
  int64_t ep = 1, etp = 1;         // expert, tensor within an expert
  /// Axes from the innermost to the outermost: tp cp ep dp pp. In the experts' mesh "tp" stands for
  /// etp and "dp" for edp; "cp" counts only in the dense one and "ep" only in the experts'. An axis
  /// of size 1 may be left out.
  std::string order = "tp-cp-ep-dp-pp";
};

struct ParallelLayout {
  MeshLayout dense;   // axes tp, cp, dp, pp
  MeshLayout expert;  // axes etp, ep, edp, pp
};

/// dp and edp take what the other axes leave of the ranks. Throws Error(config) when they do not
/// divide, when `order` names an unknown axis, one twice, or leaves one out that is larger than 1,
/// and when the two meshes would put a rank into different pipelines.
MT_API ParallelLayout parallel_layout(const RankGrid& grid);

}  // namespace mtrain
