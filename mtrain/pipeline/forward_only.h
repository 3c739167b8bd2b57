// The program of an evaluation: forwards and their transfers. Stateless.
#pragma once
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Micro-batches in groups of as many as there are ranks, each group through one stage of a rank
/// after the other; each stage receives right before and sends right behind its forward. All ranks
/// follow one order of (group, stage, micro-batch), so none can wait for ever.
MT_API Schedule forward_only(const StageMap& map, int64_t micro_batches);

}  // namespace mtrain
