// Gathers the keys and values of all ranks and reorders them into sequences; this rank's queries
// are two pieces of each sequence. Backward gathers again instead of saving them, and
// reduce-scatters their gradients.
#include "mtrain/dist/context_gather.h"

#include "mtrain/dist/context_spans.h"
#include "mtrain/dist/reorder_rows.h"

namespace mtrain {
namespace {

struct GatherAttention {
  ContextBlock block;
  std::shared_ptr<const ContextSlice> slice;
  const Axis* axis = nullptr;
  std::vector<RowRange> order = {};  // ranges of the gathered rows
  Tensor qkv = {}, sinks = {}, o = {}, lse = {};

  Tensor gathered(ExecutionContext& ctx) const {
    Tensor mine = block.pack(ctx, qkv),
           all = ctx.empty({mine.size(0) * axis->size(), mine.size(1)}, mine.dtype());
    if (ctx.backend().computes()) axis->comm().all_gather(mine, all);
    return ordered(ctx, all, order, false);
  }

  // The earlier or the later chunks of this rank's queries, and the keys that they attend to.
  SpanCall spans(bool early) const {
    const ContextRing& ring = slice->ring();
    SpanCall all{.spans = {}, .first_tokens = {}, .causal = block.scores.causal};
    int me = slice->rank();
    for (int64_t s = 0, start = 0; s < ring.sequences(); ++s) {
      int64_t length = 0;
      for (int rank = 0; rank < ring.ranks(); ++rank) length += ring.length(rank, s);
      int64_t row = ring.row(me, s) + (early ? 0 : ring.early(me, s)),
              rows = early ? ring.early(me, s) : ring.late(me, s);
      int64_t at = early ? ring.early_at(me, s) : ring.late_at(me, s);
      all.add({.row = row, .at = at, .rows = rows},
              {.row = start, .at = 0, .rows = all.causal ? at + rows : length}, block.scores.window,
              block.first_token + start + at);
      start += length;
    }
    return all;
  }

  MaybePlacement placed(const Tensor& in, const Tensor& sinks_in) const {
    return ResultPlacement("context attention", in)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::bias, sinks_in)
        .unsharded(0, "its rows are the tokens of one rank's slice");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv_in, const Tensor& sinks_in) {
    qkv = qkv_in.detach();
    if (sinks_in.defined()) sinks = sinks_in.detach();
    block.draw(ctx);
    order = slice->ring().in_order(0, axis->size());
    o = ctx.empty({qkv.size(0), block.layout.heads * block.layout.head_dim}, qkv.dtype());
    lse = ctx.empty({block.layout.heads, qkv.size(0)}, DType::f32);
    SpanCall all = spans(true);
    all.append(spans(false));
    block.forward(ctx, qkv, gathered(ctx), all.mask(), o, lse, false, sinks);
    return o;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    add_sink_gradient(ctx, g[1], sinks, block.scores, block.layout, o, dy, lse);
    if (!g[0].wanted()) return;
    Tensor keys = gathered(ctx), d_keys = ctx.zeros(keys.shape(), DType::f32),
           d_qkv = ctx.zeros(qkv.shape(), DType::f32);
    for (bool early : {true, false})  // two calls, since both attend to the same keys
      block.backward(ctx, qkv, keys, spans(early).mask(), o, lse, dy, d_qkv, d_keys);
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
                        const std::shared_ptr<const ContextSlice>& slice, const Axis& axis,
                        const Tensor& sinks) {
  return apply(GatherAttention{.block = block, .slice = slice, .axis = &axis}, qkv, sinks);
}

}  // namespace mtrain
