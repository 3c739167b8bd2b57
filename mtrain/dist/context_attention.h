// Attention over sequences whose tokens lie on several ranks: context parallelism. Queries stay
// where they are, or go by heads; what differs between the kinds is how keys and values come to
// them. Parts of a result are added in float, weighted by log-sum-exp, so that every kind equals
// attention on one rank but for rounding. Ops are for the rank's own thread; the axes outlive what
// was recorded on a tape with them.
#pragma once
#include <memory>
#include <string_view>

#include "mtrain/autograd/ops.h"
#include "mtrain/dist/context_slice.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// What a rank sends in forward, with n ranks and the bytes of all tokens' keys and values (k), or
/// queries, keys, values and results (q):
///   p2p        keys and values go round in a ring while those at hand are computed on (Liu et al.
///   2023,
///              arXiv:2310.01889); k (n-1)/n; memory for two ranks' keys
///   all_gather every rank gathers all keys and values (Llama 3, arXiv:2407.21783); k (n-1)/n
///   a2a        ranks exchange tokens for heads and back (Jacobs et al. 2023, arXiv:2309.14509); q
///   (n-1)/n²;
///              heads must divide
///   a2a_p2p    a2a among near ranks, a ring over groups of them (Fang & Zhao 2024,
///   arXiv:2405.07719)
/// In backward keys and values come again, and their gradients go back: those of a ring in float.
enum class ContextKind : uint8_t { p2p, all_gather, a2a, a2a_p2p };
/// "p2p", "all_gather", "a2a", "a2a+p2p", as in a recipe. parse throws Error(config) naming them.
MT_API const char* name(ContextKind kind);
MT_API ContextKind parse_context_kind(std::string_view text);

/// The ranks that context parallelism talks among: all of the axis, and for a2a_p2p those next to
/// each other that this one is with (ranks k·n … k·n + n-1 of the axis).
struct ContextGroups {
  const Axis* all = nullptr;
  const Axis* near = nullptr;
};

/// attention() of autograd/ops.h where the rows of `qkv` are this rank's tokens as `slice` tells:
/// o[rows, H*E]. Collective over the axis, forwards and backwards; all ranks have slices of one
/// micro-batch. Throws Error(config) where a2a cannot share out the heads (key/value heads are
/// copied where there are fewer than ranks), where a2a_p2p has no groups, and where all_gather or
/// a2a meet ranks with different numbers of rows.
MT_API Tensor context_attention(const Tensor& qkv, const HeadLayout& layout,
                                const std::shared_ptr<const ContextSlice>& slice,
                                ContextGroups groups, ContextKind kind, float scale, bool causal);

}  // namespace mtrain
