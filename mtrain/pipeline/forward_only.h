// The program of an evaluation: forwards and their transfers. Stateless; thread-safe.
#pragma once
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Processes micro-batches in groups of `map.ranks()`; a rank runs all micro-batches of a group
/// through one of its stages before it continues with its next stage. Each stage receives directly
/// before and sends directly after its forward. All ranks follow one global order of (group, stage,
/// micro-batch), so there is no deadlock.
MT_API Schedule forward_only(const StageMap& map, int64_t micro_batches);

}  // namespace mtrain
