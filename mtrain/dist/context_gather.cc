// Gathers the keys and values of all ranks and reorders them into sequences; this rank's queries
// are two pieces of each sequence. Backward gathers again instead of saving them, and
// reduce-scatters their gradients.
#include "mtrain/dist/context_gather.h"

#include "mtrain/dist/reorder_rows.h"

namespace mtrain {
namespace {

struct GatherAttention {
  ContextBlock block;
  std::shared_ptr<const ContextSlice> slice;
  const Axis* axis = nullptr;
  std::vector<RowRange> order;  // ranges of the gathered rows
  Tensor qkv, o, lse;

  Tensor gathered(ExecutionContext& ctx) const {
    Tensor mine = block.pack(ctx, qkv),
           all = ctx.empty({mine.size(0) * axis->size(), mine.size(1)}, mine.dtype());
    if (ctx.backend().computes()) axis->comm().all_gather(mine, all);
    return ordered(ctx, all, order, false);
  }

  // The earlier or the later chunks of this rank's queries, and the keys that they attend to.
  std::vector<AttentionSpan> spans(bool early) const {
    const ContextRing& ring = slice->ring();
    std::vector<AttentionSpan> all;
    int me = slice->rank();
    for (int64_t s = 0, start = 0; s < ring.sequences(); ++s) {
      int64_t length = 0;
      for (int rank = 0; rank < ring.ranks(); ++rank) length += ring.length(rank, s);
      int64_t row = ring.row(me, s) + (early ? 0 : ring.early(me, s)),
              rows = early ? ring.early(me, s) : ring.late(me, s);
      int64_t at = early ? ring.early_at(me, s) : ring.late_at(me, s);
      if (rows > 0)
        all.push_back(
            {static_cast<int32_t>(row), static_cast<int32_t>(rows), static_cast<int32_t>(start),
             static_cast<int32_t>(block.causal ? at + rows : length), static_cast<int32_t>(at)});
      start += length;
    }
    return all;
  }

  MaybePlacement placed(const Tensor& in) const {
    return ResultPlacement("context attention", in)
        .with(PlacementRule::pointwise)
        .unsharded(0, "its rows are the tokens of one rank's slice");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv_in) {
    qkv = qkv_in.detach();
    order = slice->ring().in_order(0, axis->size());
    o = ctx.empty({qkv.size(0), block.layout.heads * block.layout.head_dim}, qkv.dtype());
    lse = ctx.empty({block.layout.heads, qkv.size(0)}, DType::f32);
    std::vector<AttentionSpan> all = spans(true), late = spans(false);
    all.insert(all.end(), late.begin(), late.end());
    block.forward(ctx, qkv, gathered(ctx), {all, block.causal}, o, lse, false);
    return o;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor keys = gathered(ctx), d_keys = ctx.zeros(keys.shape(), DType::f32),
           d_qkv = ctx.zeros(qkv.shape(), DType::f32);
    for (bool early : {true, false})  // two calls, since both attend to the same keys
      block.backward(ctx, qkv, keys, {spans(early), block.causal}, o, lse, dy, d_qkv, d_keys);
    keys = {};
    Tensor sent = rounded(ctx, ordered(ctx, d_keys, order, true), qkv.dtype());
    d_keys = {};
    Tensor mine = ctx.empty({qkv.size(0), block.packed_width()}, qkv.dtype());
    if (ctx.backend().computes()) axis->comm().reduce_scatter(sent, mine);
    block.add_packed(ctx, rounded(ctx, mine, DType::f32), d_qkv);
    g[0].give(ctx, rounded(ctx, d_qkv, qkv.dtype()));
  }
};

}  // namespace

Tensor gather_attention(const Tensor& qkv, const ContextBlock& block,
                        const std::shared_ptr<const ContextSlice>& slice, const Axis& axis) {
  return apply(GatherAttention{.block = block, .slice = slice, .axis = &axis}, qkv);
}

}  // namespace mtrain
