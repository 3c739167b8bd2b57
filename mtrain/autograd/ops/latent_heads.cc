// Heads of latent attention, put together and taken apart by copies: every element is copied once.
#include "mtrain/autograd/latent_ops.h"

namespace mtrain {
namespace {

/// Element `at` of each row of a tensor [T, any], and the distance of two heads in it.
struct HeadPart {
  const Tensor* t;
  int64_t at, head;
  void* raw() const {
    return static_cast<char*>(t->raw()) + static_cast<size_t>(at) * size_of(t->dtype());
  }
};

void copy_heads(ExecutionContext& ctx, const HeadPart& from, const HeadPart& to, int64_t tokens,
                int64_t heads, int64_t count) {
  if (count == 0) return;
  const bool repeated = from.t->shape().rank() == 1;  // the same elements for all heads
  ctx.kernels().copy_blocks(ctx.stream(), {.src = from.raw(),
                                           .dst = to.raw(),
                                           .outer = tokens,
                                           .inner = heads,
                                           .count = count,
                                           .src_outer = repeated ? 0 : from.t->size(1),
                                           .src_inner = from.head,
                                           .dst_outer = to.t->size(1),
                                           .dst_inner = to.head,
                                           .accumulate = false,
                                           .dtype = to.t->dtype()});
}

struct JoinLatentHeads {
  LatentHeads h;

  MaybePlacement placed(const Tensor& q, const Tensor& kv, const Tensor& k_rotary) const {
    if (q.placement() == Placement::S(1))
      ResultPlacement("latent_heads", k_rotary)
          .turn(Placement::R(), Placement::S(1),
                "each rank has other heads, so the gradients of the shared part are partial sums");
    if (!q.placement() || q.placement() != kv.placement()) return std::nullopt;
    return ResultPlacement("latent_heads", q).with(PlacementRule::pointwise);
  }

  // The places of query, key and value of head 0 in a row of the result.
  int64_t query() const { return 0; }
  int64_t key() const { return h.width(); }
  int64_t value() const { return 2 * h.width(); }
  int64_t stride() const { return h.layout().group_stride(); }

  Tensor forward(ExecutionContext& ctx, const Tensor& q, const Tensor& kv, const Tensor& k_rotary) {
    const int64_t tokens = q.size(0), r = h.rotary;
    Tensor y = ctx.empty({tokens, h.layout().width()}, q.dtype());
    auto copy = [&](const HeadPart& from, int64_t to, int64_t count) {
      copy_heads(ctx, from, {&y, to, stride()}, tokens, h.heads, count);
    };
    const int64_t keys = h.plain + h.value;
    copy({&q, h.plain, h.query()}, query(), r);
    copy({&q, 0, h.query()}, query() + r, h.plain);
    copy({&k_rotary, 0, 0}, key(), r);
    copy({&kv, 0, keys}, key() + r, h.plain);
    copy({&kv, h.plain, keys}, value(), h.value);
    const int64_t short_query = h.width() - h.query(), short_value = h.width() - h.value;
    if (short_query + short_value == 0) return y;
    Tensor none = ctx.zeros({short_query + short_value}, q.dtype());
    copy({&none, 0, 0}, query() + h.query(), short_query);
    copy({&none, 0, 0}, key() + h.query(), short_query);
    copy({&none, 0, 0}, value() + h.value, short_value);
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    const int64_t tokens = dy.size(0), r = h.rotary, keys = h.plain + h.value;
    auto copy = [&](int64_t from, const HeadPart& to, int64_t count) {
      copy_heads(ctx, {&dy, from, stride()}, to, tokens, h.heads, count);
    };
    if (g[0].wanted()) {
      Tensor dq = ctx.empty({tokens, h.heads * h.query()}, dy.dtype());
      copy(query(), {&dq, h.plain, h.query()}, r);
      copy(query() + r, {&dq, 0, h.query()}, h.plain);
      g[0].give(ctx, dq);
    }
    if (g[1].wanted()) {
      Tensor dkv = ctx.empty({tokens, h.heads * keys}, dy.dtype());
      copy(key() + r, {&dkv, 0, keys}, h.plain);
      copy(value(), {&dkv, h.plain, keys}, h.value);
      g[1].give(ctx, dkv);
    }
    if (g[2].wanted()) g[2].give(ctx, sum_of_heads(ctx, dy));
  }

  /// The gradient of what all heads share, summed in float and rounded once: the sum of the columns
  /// of [H, T*R].
  Tensor sum_of_heads(ExecutionContext& ctx, const Tensor& dy) const {
    const int64_t tokens = dy.size(0), r = h.rotary;
    Tensor parts = ctx.empty({h.heads, tokens * r}, dy.dtype()),
           sum = ctx.empty({tokens, r}, DType::f32);
    const HeadPart from{&dy, key(), stride()};
    ctx.kernels().copy_blocks(ctx.stream(), {.src = from.raw(),
                                             .dst = parts.raw(),
                                             .outer = tokens,
                                             .inner = h.heads,
                                             .count = r,
                                             .src_outer = dy.size(1),
                                             .src_inner = stride(),
                                             .dst_outer = r,
                                             .dst_inner = tokens * r,
                                             .accumulate = false,
                                             .dtype = dy.dtype()});
    ctx.kernels().column_sum(ctx.stream(), {.x = parts.raw(),
                                            .out = sum.data<float>(),
                                            .rows = h.heads,
                                            .cols = tokens * r,
                                            .accumulate = false,
                                            .dtype = dy.dtype()});
    if (dy.dtype() == DType::f32) return sum;
    Tensor out = ctx.empty(sum.shape(), dy.dtype());
    ctx.copy(out, sum);
    return out;
  }
};

struct NarrowHeads {
  int64_t heads = 1, width = 1, count = 1;

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("narrow_heads", x).with(PlacementRule::pointwise);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = ctx.empty({x.size(0), heads * count}, x.dtype());
    copy_heads(ctx, {&x, 0, width}, {&y, 0, count}, x.size(0), heads, count);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor dx = ctx.empty({dy.size(0), heads * width}, dy.dtype()),
           none = ctx.zeros({width - count}, dy.dtype());
    copy_heads(ctx, {&dy, 0, count}, {&dx, 0, width}, dy.size(0), heads, count);
    copy_heads(ctx, {&none, 0, 0}, {&dx, count, width}, dy.size(0), heads, width - count);
    g[0].give(ctx, dx);
  }
};

void check_matrix(const Tensor& x, int64_t tokens, int64_t width, DType dtype) {
  MT_CHECK(x.contiguous() && x.shape() == Shape({tokens, width}) && x.dtype() == dtype, x.shape(),
           " ", name(x.dtype()), " for [", tokens, ", ", width, "] ", name(dtype));
}

}  // namespace

Tensor latent_heads(const Tensor& q, const Tensor& kv, const Tensor& k_rotary,
                    const LatentHeads& heads) {
  const int64_t tokens = q.size(0);
  check_matrix(q, tokens, heads.heads * heads.query(), q.dtype());
  check_matrix(kv, tokens, heads.heads * (heads.plain + heads.value), q.dtype());
  check_matrix(k_rotary, tokens, heads.rotary, q.dtype());
  require_kernel(q.context(), q.context().kernels().copy_blocks, "copy_blocks");
  require_kernel(q.context(), q.context().kernels().column_sum, "column_sum");
  return apply(JoinLatentHeads{.h = heads}, q, kv, k_rotary);
}

Tensor narrow_heads(const Tensor& x, int64_t heads, int64_t count) {
  MT_CHECK(
      heads > 0 && x.shape().rank() == 2 && x.size(1) % heads == 0 && count <= x.size(1) / heads,
      count, " elements of ", heads, " heads of ", x.shape());
  const int64_t width = x.size(1) / heads;
  if (width == count) return x;
  check_matrix(x, x.size(0), x.size(1), x.dtype());
  require_kernel(x.context(), x.context().kernels().copy_blocks, "copy_blocks");
  return apply(NarrowHeads{.heads = heads, .width = width, .count = count}, x);
}

}  // namespace mtrain
