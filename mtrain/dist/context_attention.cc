#include "mtrain/dist/context_attention.h"

#include <array>
#include <numeric>
#include <string>

#include "mtrain/dist/context_gather.h"
#include "mtrain/dist/context_ring.h"
#include "mtrain/dist/redistribute.h"
#include "mtrain/dist/reorder_rows.h"
#include "mtrain/dist/repeat_kv.h"

namespace mtrain {
namespace {

constexpr std::array<std::pair<ContextKind, const char*>, 4> kContextKindNames = {
    {{ContextKind::p2p, "p2p"},
     {ContextKind::all_gather, "all_gather"},
     {ContextKind::a2a, "a2a"},
     {ContextKind::a2a_p2p, "a2a+p2p"}}};

void require_even(const ContextRing& ring, ContextKind kind) {
  MT_USER_CHECK(ring.even(), ErrorClass::config,
                cat(name(kind), " needs the same number of tokens on all ", ring.ranks(),
                    " context-parallel ranks, but the micro-batch has ", ring.tokens(), " tokens"),
                cat("use dist.cp_comm=p2p, or make the tokens of a micro-batch a multiple of ",
                    ring.ranks()));
}

// How often keys must be replicated so that each of `ranks` gets whole groups of heads.
int64_t key_copies(const HeadLayout& layout, int ranks) {
  MT_USER_CHECK(
      layout.heads % ranks == 0, ErrorClass::config,
      cat("a2a cannot divide ", layout.heads, " heads among ", ranks, " context-parallel ranks"),
      cat("choose a number of ranks that divides the ", layout.heads,
          " heads of a rank, or dist.cp_comm=p2p"));
  return ranks / std::gcd(layout.groups, static_cast<int64_t>(ranks));
}

std::vector<RingPart> ring_parts(const ContextSlice& slice) {
  std::vector<RingPart> parts;
  for (const ContextSlice::Part& part : slice.parts())
    parts.push_back(
        {part.ring, slice.rank() - part.first_rank, part.first_rank, 1, part.row, part.starts});
  return parts;
}

// Attention on one rank: all tokens of the ring's sequences are here, in order.
Tensor whole_attention(const Tensor& qkv, const ContextBlock& block, const ContextRing& ring,
                       const Tensor& sinks) {
  auto bounds = std::make_shared<std::vector<int32_t>>(1, 0);
  for (int64_t s = 0; s < ring.sequences(); ++s)
    bounds->push_back(bounds->back() + static_cast<int32_t>(ring.length(0, s)));
  return attention(qkv, block.layout, bounds, block.scores, sinks);
}

// The ranks of `near` exchange tokens for heads. Then each rank has the rows of the whole group, in
// order, for its share of the heads, and runs ring attention with the ranks at the same index in
// the other groups.
Tensor all_to_all_attention(const Tensor& qkv, ContextBlock block, const ContextSlice& slice,
                            const Axis& near, const Axis& axis, const Tensor& sinks) {
  constexpr int kTokens = 0, kHeads = 1;
  int n = near.size(), group = slice.rank() / n;
  int64_t copies = key_copies(block.layout, n);
  std::vector<RowRange> order = slice.ring().in_order(group * n, n);
  Tensor mine = repeat_kv(qkv, block.layout, copies);
  Tensor all = redistribute(mine, near, Placement::S(kTokens), Placement::S(kHeads));
  all = reorder_rows(all, order, false);
  HeadLayout whole = with_copies(block.layout, copies);
  block.layout = {whole.heads / n, whole.groups / n, whole.head_dim};
  block.scores.first_head += near.index() * block.layout.heads;
  block.scores.first_sink += near.index() * block.layout.heads;
  RingPart part{slice.ring().of_groups(n), group, slice.rank() % n, n, 0, slice.parts()[0].starts};
  Tensor o = part.ring.ranks() == 1 ? whole_attention(all, block, part.ring, sinks)
                                    : ring_attention(all, block, {part}, axis.comm(), sinks);
  return redistribute(reorder_rows(o, order, true), near, Placement::S(kHeads),
                      Placement::S(kTokens));
}

}  // namespace

const char* name(ContextKind kind) {
  for (const auto& [known, text] : kContextKindNames)
    if (known == kind) return text;
  return "?";
}

ContextKind parse_context_kind(std::string_view text) {
  for (const auto& [kind, known] : kContextKindNames)
    if (known == text) return kind;
  throw Error(ErrorClass::config,
              cat("dist.cp_comm: '", text,
                  "' is not a method by which context-parallel ranks exchange keys and values"),
              "choose one of p2p, all_gather, a2a, a2a+p2p");
}

Tensor context_attention(const Tensor& qkv, const HeadLayout& layout,
                         const std::shared_ptr<const ContextSlice>& slice, ContextGroups groups,
                         ContextKind kind, const AttentionScores& scores, const Tensor& sinks) {
  MT_CHECK(groups.all, "no axis");
  const Axis& axis = *groups.all;
  MT_CHECK(layout.groups > 0 && layout.heads % layout.groups == 0, layout.heads, " heads, ",
           layout.groups, " groups");
  MT_CHECK(qkv.contiguous() && qkv.shape().rank() == 2 && qkv.size(1) == layout.width(),
           qkv.shape(), " for width ", layout.width());
  MT_CHECK(slice && slice->ranks() == axis.size() && slice->rank() == axis.index(),
           "a slice of another axis than ", axis.name());
  MT_CHECK(slice->rows() == qkv.size(0), slice->rows(), " rows for ", qkv.shape());
  require_kernel(qkv.context(), qkv.context().kernels().attention, "attention");
  check_scores(scores, layout, qkv, sinks);
  ContextBlock block{layout, scores};
  if (axis.size() == 1) return whole_attention(qkv, block, slice->ring(), sinks);
  if (kind == ContextKind::p2p)
    return ring_attention(qkv, block, ring_parts(*slice), axis.comm(), sinks);
  MT_USER_CHECK(slice->parts().size() == 1 && slice->parts()[0].ring.ranks() == axis.size(),
                ErrorClass::config,
                cat(name(kind), " needs every sequence on all context-parallel ranks"),
                "use dist.cp_comm=p2p with dist.dynamic_cp");
  require_even(slice->ring(), kind);
  if (kind == ContextKind::all_gather) return gather_attention(qkv, block, slice, axis, sinks);
  if (kind == ContextKind::a2a) return all_to_all_attention(qkv, block, *slice, axis, axis, sinks);
  MT_USER_CHECK(groups.near, ErrorClass::config, "a2a+p2p needs the sizes of its levels",
                cat("set dist.cp_hierarchy to two sizes whose product is ", axis.size()));
  MT_CHECK(axis.size() % groups.near->size() == 0, groups.near->size(), " of ", axis.size());
  return all_to_all_attention(qkv, block, *slice, *groups.near, axis, sinks);
}

}  // namespace mtrain
