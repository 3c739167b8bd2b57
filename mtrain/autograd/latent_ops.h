// Differentiable ops of multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, 2.1):
// heads of queries, keys and values from the projections of their latents. Conventions as in ops.h;
// R is the width of the rotary part.
#pragma once
#include <algorithm>
#include <array>
#include <functional>

#include "mtrain/autograd/ops.h"

namespace mtrain {

/// Widths of the parts of a head. A query and a key have a plain part (without rotary positions,
/// "nope" in DeepSeek's code) and a rotary part.
struct LatentHeads {
  int64_t heads = 1, plain = 1, rotary = 1, value = 1;
  int64_t query() const { return plain + rotary; }
  /// The common head dimension of queries, keys and values in the tensor that attention reads:
  /// max(query(), value).
  int64_t width() const { return std::max(query(), value); }
  HeadLayout layout() const { return {heads, heads, width()}; }
};

/// qkv [T, layout().width()] from queries [T, H*(plain + rotary)], keys and values
/// [T, H*(plain + value)], and the rotary part of the keys [T, R], which all heads share. In the
/// result the rotary part of a head comes first, where rope() rotates it, then the plain part;
/// shorter heads are padded with zeros to width().
MT_API Tensor latent_heads(const Tensor& q_TN, const Tensor& kv_TN, const Tensor& k_rotary_TR,
                           const LatentHeads& heads);
/// y [T, H*count]: the first `count` elements of each head of x [T, H*E].
MT_API Tensor narrow_heads(const Tensor& x_TN, int64_t heads, int64_t count);

/// Runs block(a, b, c) without saving its activations, like recompute(), but so that
/// discard_until_backward() can discard the result; backward runs the block once in either case.
/// `c` may be undefined. REQUIRES: the result of `block` is produced by an op inside it and does
/// not share storage with its inputs or with any other tensor.
MT_API Tensor recompute_discardable(std::function<Tensor(const std::array<Tensor, 3>&)> block,
                                    const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace mtrain
