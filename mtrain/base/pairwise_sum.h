// The sum of numbers in the order in which numpy adds them, so that weights of data are the same
// numbers as those that Megatron-LM computes. Stateless; safe from any thread.
#pragma once
#include <span>

#include "mtrain/base/export.h"

namespace mtrain {

/// numpy's add.reduce over float64: fewer than 8 terms in order, up to 128 in eight partial sums,
/// more as the sum of two halves.
MT_API double pairwise_sum(std::span<const double> x);

}  // namespace mtrain
