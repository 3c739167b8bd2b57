// Rotary position embedding and fused attention on one projection that holds queries, keys and
// values group by group.
#include <algorithm>

#include "mtrain/autograd/ops.h"
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
  float scale = 1;
  bool causal = true;
  Tensor qkv, o, lse;

  MaybePlacement placed(const Tensor& in) const {
    return ResultPlacement("attention", in)
        .with(PlacementRule::pointwise)
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
            .scale = scale,
            .causal = causal,
            .dtype = qkv.dtype()};
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv_in) {
    qkv = qkv_in.detach();
    o = ctx.empty({qkv.size(0), layout.heads * layout.head_dim}, qkv.dtype());
    lse = ctx.empty({layout.heads, qkv.size(0)}, DType::f32);
    ctx.kernels().attention(ctx.stream(), args());
    return o;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
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

void check(const Tensor& qkv, const HeadLayout& layout) {
  MT_CHECK(layout.groups > 0 && layout.heads % layout.groups == 0, layout.heads, " heads, ",
           layout.groups, " groups");
  MT_CHECK(qkv.contiguous() && qkv.shape().rank() == 2 && qkv.size(1) == layout.width(),
           qkv.shape(), " for width ", layout.width());
}

}  // namespace

Tensor rope(Tensor&& qkv, const HeadLayout& layout, const RopeTable& table,
            const Tensor& positions) {
  check(qkv, layout);
  MT_CHECK(positions.numel() == qkv.size(0), positions.shape());
  MT_CHECK(table.cos.size(1) * 2 <= layout.head_dim, table.cos.shape(), " for head dim ",
           layout.head_dim);
  Tensor own = std::move(qkv);
  return apply(Rope{.layout = layout, .table = table, .positions = positions}, own);
}

Tensor attention(const Tensor& qkv, const HeadLayout& layout, const SequenceBounds& bounds,
                 float scale, bool causal) {
  check(qkv, layout);
  MT_CHECK(bounds && bounds->size() >= 2 && bounds->front() == 0 && bounds->back() == qkv.size(0) &&
               std::is_sorted(bounds->begin(), bounds->end()),
           "sequence bounds of ", qkv.size(0), " tokens");
  require_kernel(qkv.context(), qkv.context().kernels().attention, "attention");
  return apply(Attention{.layout = layout, .bounds = bounds, .scale = scale, .causal = causal},
               qkv);
}

}  // namespace mtrain
