// Differentiable noise on the residual stream. T tokens, D width. For the rank's own thread.
#pragma once
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// y = x + n while training, where each element's n is drawn uniformly from -size to size (NEFTune:
/// Jain et al. 2023, arXiv:2310.05914), as one of 2^kUniformBits equally spaced values. The draw
/// depends only on seed, name, step and global token index, as that of dropout(). The sum is
/// rounded once; its gradient is that of x.
MT_API Tensor add_noise(const Tensor& x_TD, float size, uint64_t name_key);

/// Bits of a random number of add_noise() and jitter(). About five passes over memory per bit:
/// there is no fused kernel.
inline constexpr int kUniformBits = 12;

}  // namespace mtrain
