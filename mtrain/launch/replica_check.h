// Checks that replicas still hold equal parameters. A flipped bit, a faulty core or a bug could
// make them diverge silently, since each rank updates its own copy. Stateless functions; for the
// rank's own thread.
#pragma once
#include <span>
#include <string>

#include "mtrain/launch/rank_mesh.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

/// Collective over `replicas`, with the same result on every rank of the group: empty when all
/// ranks hold the same bits of `parameters`; otherwise names the world ranks that differ from the
/// majority, and the first parameter that differs.
MT_API std::string replica_differences(std::span<const Parameter* const> parameters,
                                       Communicator& replicas);

/// Collective: throws Error(numeric) when replicas differ after `step`.
MT_API void require_equal_replicas(const ParamList& parameters, const RankMesh& mesh, int64_t step);

}  // namespace mtrain
