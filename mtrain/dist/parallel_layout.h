// Creates the two meshes of a run from the recipe's `dist` section: the dense mesh, and the
// experts' mesh over the same ranks ("parallel folding": attention and experts are sharded
// independently). Follows Megatron's rank order. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

/// The number of ranks and the sizes of the axes.
struct RankGrid {
  int64_t world_size = 1;
  int64_t tp = 1, pp = 1, cp = 1;  // tensor, pipeline, context
  int64_t ep = 1, etp = 1;         // expert, tensor within an expert
  /// Axes from innermost to outermost: tp cp ep dp pp. In the experts' mesh "tp" means etp and "dp"
  /// means edp; "cp" applies only to the dense mesh and "ep" only to the experts' mesh. An axis of
  /// size 1 may be omitted.
  std::string order = "tp-cp-ep-dp-pp";
};

struct ParallelLayout {
  MeshLayout dense;   // axes tp, cp, dp, pp
  MeshLayout expert;  // axes etp, ep, edp, pp
};

/// dp and edp get the ranks that the other axes leave. Throws Error(config) if the sizes do not
/// divide; if `order` has an unknown or repeated axis, or omits one of size > 1; and if the two
/// meshes would place a rank in different pipelines.
MT_API ParallelLayout parallel_layout(const RankGrid& grid);

}  // namespace mtrain
