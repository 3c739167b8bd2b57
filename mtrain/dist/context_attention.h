// Attention over sequences whose tokens are sharded over ranks: context parallelism. Queries stay
// on their rank, or are redistributed by heads; the kinds differ in how keys and values reach them.
// Partial results are combined in float, weighted by log-sum-exp, so every kind equals attention on
// one rank up to rounding. For the rank's own thread; the axes must outlive tapes that were
// recorded with them.
#pragma once
#include <memory>
#include <string_view>

#include "mtrain/autograd/ops.h"
#include "mtrain/dist/context_slice.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// The communication of forward, with n ranks, k = bytes of all tokens' keys and values, q = bytes
/// of all tokens' queries, keys, values and results:
///   p2p         keys and values circulate in a ring, overlapped with compute (Liu et al. 2023,
///               arXiv:2310.01889); sends k (n-1)/n; memory for two ranks' keys
///   all_gather  every rank gathers all keys and values (Llama 3, arXiv:2407.21783);
///               sends k (n-1)/n
///   a2a         ranks exchange tokens for heads and back (Jacobs et al. 2023, arXiv:2309.14509);
///               sends q (n-1)/n²; the number of heads must be divisible
///   a2a_p2p     a2a among adjacent ranks, a ring over groups of them (Fang & Zhao 2024,
///               arXiv:2405.07719)
/// Backward transfers keys and values again, and returns their gradients; those of a ring are in
/// float.
enum class ContextKind : uint8_t { p2p, all_gather, a2a, a2a_p2p };
/// "p2p", "all_gather", "a2a", "a2a+p2p", as in a recipe. parse throws Error(config) that lists
/// them.
MT_API const char* name(ContextKind kind);
MT_API ContextKind parse_context_kind(std::string_view text);

/// The groups of ranks of context parallelism: the whole axis, and for a2a_p2p this rank's group of
/// adjacent ranks (ranks k·n … k·n + n-1 of the axis). Not owned.
struct ContextGroups {
  const Axis* all = nullptr;
  const Axis* near = nullptr;
};

/// attention() of autograd/ops.h for qkv [rows, layout.width()], where the rows are this rank's
/// tokens according to `slice`. The gradient of the sinks is that of this rank's share of the
/// tokens and heads: a partial sum over the axis, as for every parameter. Returns o[rows, H*E].
/// Collective over the axis, in forward and backward; all ranks have slices of the same
/// micro-batch. Throws Error(config) if a2a cannot divide the heads (key/value heads are replicated
/// if there are fewer than ranks), if a2a_p2p has no groups, and if ranks have different numbers of
/// rows with all_gather or a2a.
MT_API Tensor context_attention(const Tensor& qkv, const HeadLayout& layout,
                                const std::shared_ptr<const ContextSlice>& slice,
                                ContextGroups groups, ContextKind kind,
                                const AttentionScores& scores, const Tensor& sinks_H = {});

}  // namespace mtrain
