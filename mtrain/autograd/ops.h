// The differentiable ops: each a free function that checks its arguments and puts one coarse node
// on the tape. Shape suffixes: T tokens (batch folded in), D width, N outputs, H heads, G key/value
// groups, E head dim, F mlp, V vocabulary. Shape faults are bugs of the model's author and throw
// Error(bug) with both shapes. An op whose kernels the backend lacks runs its composition
// (ops/compositions.h), or throws Error(config) where it has none.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// y[T,N] = x[T,D] · w[N,D]ᵀ + b[N] + residual[T,N]; `b` and `residual` may be undefined. The sum
/// is rounded once. The gradient of w adds up in float inside the GEMM. With `small`, which
/// outlives the tape, all three products are in a low-precision type.
MT_API Tensor linear(const Tensor& x_TD, const Tensor& w_ND, const Tensor& b_N = {},
                     const Tensor& residual_TN = {}, const QuantizedProducts* quantized = nullptr);
/// y[t] = table[ids[t] - first_row]; ids int32 [T], already checked to lie inside the whole table,
/// of which `table` holds the rows from `first_row` on. 0 for ids of other rows.
MT_API Tensor embedding(const Tensor& table_VD, const Tensor& ids_T, int64_t first_row = 0);
/// y = w * x / sqrt(mean(x²) + eps) per token.
MT_API Tensor rms_norm(const Tensor& x_TD, const Tensor& w_D, float eps);
/// y = w * (x - mean) / sqrt(var + eps) + b per token; `b` may be undefined.
MT_API Tensor layer_norm(const Tensor& x_TD, const Tensor& w_D, const Tensor& b_D, float eps);
/// y = a + b.
MT_API Tensor add(const Tensor& a, const Tensor& b);
/// y[T,N] = x[T,N] + b[N] + residual[T,N], rounded once; `b` or `residual` may be undefined.
MT_API Tensor add_bias(const Tensor& x_TN, const Tensor& b_N, const Tensor& residual_TN = {});
/// y = a * b, element by element.
MT_API Tensor mul(const Tensor& a, const Tensor& b);
/// y = factor * x.
MT_API Tensor scale(const Tensor& x, float factor);
/// y = silu(gate) * up.
MT_API Tensor silu_mul(const Tensor& gate_TF, const Tensor& up_TF);
/// y = gelu(x).
MT_API Tensor gelu(const Tensor& x, GeluKind kind);
/// y = dropout(x) with probability p while training; the mask depends only on seed, name, step and
/// global token, which Run::first_token and Run::own_tokens tell for the rows of the residual
/// stream.
MT_API Tensor dropout(const Tensor& x_TD, float p, uint64_t name_key);

/// How a fused projection [T, G*(H/G + 2)*E] holds its heads: group by group, its query heads, its
/// key, its value.
struct HeadLayout {
  int64_t heads = 1, groups = 1, head_dim = 1;
  int64_t queries_per_group() const { return heads / groups; }
  int64_t group_stride() const { return (queries_per_group() + 2) * head_dim; }
  int64_t width() const { return groups * group_stride(); }
};

/// Cosines and sines [max_position, rotary_dim/2] in float.
struct RopeTable {
  Tensor cos, sin;
};

/// Where the sequences of a folded batch lie: sequence s holds tokens [cu_seqlens[s],
/// cu_seqlens[s+1]). On the host.
using SequenceBounds = std::shared_ptr<const std::vector<int32_t>>;

/// Rotates query and key heads by their token's position. Takes the tensor over: it is rotated in
/// place.
MT_API Tensor rope(Tensor&& qkv, const HeadLayout& layout, const RopeTable& table,
                   const Tensor& positions_T);
/// o[T, H*E] = attention within each sequence, causal or not, scaled by `scale`.
MT_API Tensor attention(const Tensor& qkv, const HeadLayout& layout, const SequenceBounds& bounds,
                        float scale, bool causal);
/// One rank's part of a vocabulary that is cut over ranks: the matrix's row 0 is id `first`.
/// `join(targets, loss, lse)` makes of what the ranks have, each for its own ids — minus the
/// target's logit (0 elsewhere), log-sum-exp — the whole vocabulary's loss and log-sum-exp, in
/// place. All ranks call it alike, once per piece of the tokens.
struct VocabularyPart {
  int64_t first = 0;
  int64_t largest =
      0;  // ids on the rank that has most, so that all cut the tokens into the same pieces
  std::function<void(const Tensor& targets_T, const Tensor& loss_T, const Tensor& lse_T)> join;
};

/// Loss per token in float [T]: -log softmax(logits)[target]; 0 where target < 0. Columns past
/// `valid_vocab` are padding. Takes the logits over: backward writes their gradient in their place.
/// With a `part` they are those of its ids, and `valid_vocab` counts ids of the whole vocabulary.
MT_API Tensor cross_entropy(Tensor&& logits_TV, const Tensor& targets_T, int64_t valid_vocab,
                            const VocabularyPart& part);
MT_API Tensor cross_entropy(Tensor&& logits_TV, const Tensor& targets_T, int64_t valid_vocab);

/// cross_entropy(linear(x, w, b), targets, valid_vocab) a piece of the tokens at a time: logits of
/// all tokens are never there together. `loss_weight` is what backward will be given for every
/// token; with it the gradients are computed — and those of a parameter added up — in forward,
/// while a piece's logits exist. 0: not known; then all logits are kept. With a `part`,
/// `valid_vocab` still counts ids of the whole vocabulary, and the gradient of x is a summand over
/// the ranks (Shoeybi et al. 2019, arXiv:1909.08053, §3). With `later` the gradients of w and b are
/// left there instead, and with them the gradient of all logits. `b` may be undefined; with a
/// `part` it has an entry for each of the rank's own ids, as w has a row.
MT_API Tensor linear_cross_entropy(const Tensor& x_TD, const Tensor& w_VD, const Tensor& targets_T,
                                   int64_t valid_vocab, float loss_weight,
                                   const VocabularyPart& part = {},
                                   DeferredGradients* later = nullptr,
                                   const QuantizedProducts* quantized = nullptr,
                                   const Tensor& b_V = {});

/// Returns `y`, which was computed from `kept`, an op's result that nothing else reads: its memory
/// goes, and backward has that op compute it once more when it comes to `y` (output-discarding
/// recomputation; Megatron-LM, mtrain/tensor_parallel/random.py). `y` as it is where no tape is
/// kept or the op cannot compute its result from what it keeps: norms and activations can.
MT_API Tensor discard_until_backward(const Tensor& y, const Tensor& kept);

/// What one part of the model keeps for backward lies in host memory meanwhile: `offload_begin`
/// where the part begins, on its input, `offload_end` where it ends, on its result. Values are not
/// changed. Parts follow each other and do not nest.
MT_API Tensor offload_begin(const Tensor& x);
MT_API Tensor offload_end(const Tensor& y);

/// Runs `block(x)` without keeping its activations; backward runs it again (Chen et al. 2016,
/// arXiv:1604.06174). Same result to the bit, since every op and random draw is a function of its
/// arguments.
MT_API Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x);
/// The same of two inputs, of which the second may be undefined.
MT_API Tensor recompute(std::function<Tensor(const Tensor&, const Tensor&)> block, const Tensor& a,
                        const Tensor& b);

}  // namespace mtrain
