// Whether ranks that are to hold the same parameters still do: what a flipped bit, a faulty core or
// a defect of ours would make untrue without anybody noticing, since each rank goes on by itself.
// For the rank's own thread.
#pragma once
#include <span>
#include <string>

#include "mtrain/launch/rank_mesh.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

/// Collective over `replicas`: empty when all hold the same bits of `parameters`, otherwise which
/// ranks of the world hold others than the most do, and of which parameter first. The same on every
/// rank of the group.
MT_API std::string replica_differences(std::span<const Parameter* const> parameters,
                                       Communicator& replicas);

/// Collective: throws Error(numeric) when replicas differ after `step`.
MT_API void require_equal_replicas(const ParamList& parameters, const RankMesh& mesh, int64_t step);

}  // namespace mtrain
