// The loss over a vocabulary that is sharded over ranks. Stateless.
#pragma once
#include "mtrain/autograd/ops.h"
#include "mtrain/nn/parallel.h"

namespace mtrain {

/// This rank's shard of a vocabulary that is split evenly over `axis` (even_piece), for
/// linear_cross_entropy(); without `join` if the axis has one rank. Log-sum-exps are combined in
/// the order of the ranks.
MT_API VocabularyPart vocabulary_part(const Axis* axis, int64_t vocab);

}  // namespace mtrain
