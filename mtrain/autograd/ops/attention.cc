// Rotary position embedding and fused attention on one projection that holds queries, keys and
// values group by group.
#include <algorithm>

#include "mtrain/autograd/ops/attention_scores.h"
#include "mtrain/autograd/ops/compositions.h"

namespace mtrain {
namespace {

struct Rope {  // a rotation, times a factor in the table: backward rotates dy back by the angles
  HeadLayout layout;
  RopeTable table;
  Tensor positions;

  MaybePlacement placed(const Tensor& qkv) const {
    return ResultPlacement("rope", qkv)
        .with(PlacementRule::pointwise)
        .unsharded(0, "positions are those of all tokens");
  }
  void rotate(ExecutionContext& ctx, const Tensor& x, bool inverse) const {
    if (!ctx.kernels().rope) return plain::rotate(x, layout, table, positions, inverse);
    ctx.kernels().rope(ctx.stream(), {.x = x.raw(),
                                      .positions = positions.data<int32_t>(),
                                      .cos = table.cos.data<float>(),
                                      .sin = table.sin.data<float>(),
                                      .tokens = x.size(0),
                                      .groups = layout.groups,
                                      .heads_per_group = layout.queries_per_group() + 1,
                                      .head_dim = layout.head_dim,
                                      .rotary_dim = table.cos.size(1) * 2,
                                      .row_stride = layout.width(),
                                      .group_stride = layout.group_stride(),
                                      .inverse = inverse,
                                      .dtype = x.dtype(),
                                      .interleaved = table.interleaved});
  }
  static Tensor writable(ExecutionContext& ctx, const Tensor& x, bool exclusive) {
    if (exclusive) return x.detach();
    Tensor copy = ctx.empty(x.shape(), x.dtype());
    ctx.copy(copy, x);
    return copy;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = writable(ctx, x, x.unique());
    rotate(ctx, y, false);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor dx = writable(ctx, dy, dy.unique());
    rotate(ctx, dx, true);
    g[0].give(ctx, dx);
  }
};

struct Attention {  // o = softmax(scale q kᵀ) v; probabilities are recomputed from lse in backward
  HeadLayout layout;
  SequenceBounds bounds;
  AttentionScores scores;
  AttentionDropout dropout = {};
  std::vector<int64_t> first_tokens = {};
  Tensor qkv = {}, sinks = {}, o = {}, lse = {};

  MaybePlacement placed(const Tensor& in, const Tensor& sinks_in) const {
    return ResultPlacement("attention", in)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::bias, sinks_in)
        .unsharded(0, "each token attends to the whole sequence");
  }
  HeadsView view(const Tensor& t, int64_t first_head) const {
    auto* base = static_cast<char*>(t.raw()) +
                 static_cast<size_t>(first_head * layout.head_dim) * size_of(t.dtype());
    return {base, layout.width(), layout.group_stride()};
  }
  AttentionArgs args() const {
    int64_t queries = layout.queries_per_group();
    return {.q = view(qkv, 0),
            .k = view(qkv, queries),
            .v = view(qkv, queries + 1),
            .o = o.raw(),
            .lse = lse.data<float>(),
            .cu_seqlens = bounds->data(),
            .sequences = static_cast<int64_t>(bounds->size()) - 1,
            .tokens = qkv.size(0),
            .heads = layout.heads,
            .groups = layout.groups,
            .head_dim = layout.head_dim,
            .scale = scores.scale,
            .causal = scores.causal,
            .dtype = qkv.dtype(),
            .window = scores.window,
            .cap = scores.cap,
            .sinks = first_sink(sinks, scores),
            .dropout = dropout};
  }
  void draw(ExecutionContext& ctx) {
    dropout = dropout_now(ctx, scores);
    if (dropout.p == 0) return;
    for (int32_t begin : *bounds) first_tokens.push_back(ctx.first_token + begin);
    dropout.first_tokens = first_tokens.data();
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv_in, const Tensor& sinks_in) {
    qkv = qkv_in.detach();
    if (sinks_in.defined()) sinks = sinks_in.detach();
    draw(ctx);
    o = ctx.empty({qkv.size(0), layout.heads * layout.head_dim}, qkv.dtype());
    lse = ctx.empty({layout.heads, qkv.size(0)}, DType::f32);
    ctx.kernels().attention(ctx.stream(), args());
    return o;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    add_sink_gradient(ctx, g[1], sinks, scores, layout, o, dy, lse);
    if (!g[0].wanted()) return;
    int64_t queries = layout.queries_per_group();
    Tensor d_qkv = ctx.empty(qkv.shape(), qkv.dtype());
    ctx.kernels().attention_backward(ctx.stream(), {.forward = args(),
                                                    .d_o = dy.raw(),
                                                    .dq = view(d_qkv, 0),
                                                    .dk = view(d_qkv, queries),
                                                    .dv = view(d_qkv, queries + 1)});
    g[0].give(ctx, d_qkv);
  }
};

void check_qkv(const Tensor& qkv, const HeadLayout& layout) {
  MT_CHECK(layout.groups > 0 && layout.heads % layout.groups == 0, layout.heads, " heads, ",
           layout.groups, " groups");
  MT_CHECK(qkv.contiguous() && qkv.shape().rank() == 2 && qkv.size(1) == layout.width(),
           qkv.shape(), " for width ", layout.width());
}

}  // namespace

void check_scores(const AttentionScores& scores, const HeadLayout& layout, const Tensor& qkv,
                  const Tensor& sinks) {
  MT_CHECK(scores.scale > 0 && scores.cap >= 0 && scores.window >= 0, scores.scale, ", cap ",
           scores.cap, ", window ", scores.window);
  MT_CHECK(scores.causal || scores.window == 0, "a window of ", scores.window,
           " tokens without causal attention");
  MT_CHECK(scores.dropout >= 0 && scores.dropout < 1, "dropout ", scores.dropout);
  if (!sinks.defined()) return;
  MT_CHECK(sinks.contiguous() && sinks.dtype() == qkv.dtype() && scores.first_sink >= 0 &&
               scores.first_sink + layout.heads <= sinks.numel(),
           sinks.shape(), " sinks of ", name(sinks.dtype()), " for heads ", scores.first_sink,
           " to ", scores.first_sink + layout.heads, " of ", name(qkv.dtype()));
  require_kernel(qkv.context(), qkv.context().kernels().attention_sink_backward,
                 "attention_sink_backward");
}

Tensor rope(Tensor&& qkv, const HeadLayout& layout, const RopeTable& table,
            const Tensor& positions) {
  check_qkv(qkv, layout);
  MT_CHECK(positions.numel() == qkv.size(0), positions.shape());
  MT_CHECK(table.cos.size(1) * 2 <= layout.head_dim, table.cos.shape(), " for head dim ",
           layout.head_dim);
  Tensor own = std::move(qkv);
  return apply(Rope{.layout = layout, .table = table, .positions = positions}, own);
}

Tensor attention(const Tensor& qkv, const HeadLayout& layout, const SequenceBounds& bounds,
                 const AttentionScores& scores, const Tensor& sinks) {
  check_qkv(qkv, layout);
  check_scores(scores, layout, qkv, sinks);
  MT_CHECK(bounds && bounds->size() >= 2 && bounds->front() == 0 && bounds->back() == qkv.size(0) &&
               std::is_sorted(bounds->begin(), bounds->end()),
           "sequence bounds of ", qkv.size(0), " tokens");
  require_kernel(qkv.context(), qkv.context().kernels().attention, "attention");
  return apply(Attention{.layout = layout, .bounds = bounds, .scores = scores}, qkv, sinks);
}

}  // namespace mtrain
