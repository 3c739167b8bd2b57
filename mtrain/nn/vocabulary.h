// A vocabulary that is cut over ranks: what each of them needs of the others to know a token's
// loss. Stateless.
#pragma once
#include "mtrain/autograd/ops.h"
#include "mtrain/nn/parallel.h"

namespace mtrain {

/// This rank's ids of a vocabulary cut evenly over `axis` (even_piece), for linear_cross_entropy();
/// none where the axis cuts nothing. Log-sum-exps are added in the order of the ranks.
MT_API VocabularyPart vocabulary_part(const Axis* axis, int64_t vocab);

}  // namespace mtrain
