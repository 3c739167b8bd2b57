#include "mtrain/dist/context_block.h"

#include <limits>

namespace mtrain {
namespace {

HeadsView view_at(const Tensor& t, int64_t element, int64_t row_stride, int64_t group_stride) {
  return {static_cast<char*>(t.raw()) + static_cast<size_t>(element) * size_of(t.dtype()),
          row_stride, group_stride};
}

}  // namespace

HeadsView ContextBlock::fused(const Tensor& t, int64_t first_head) const {
  return view_at(t, first_head * layout.head_dim, layout.width(), layout.group_stride());
}

// `which`: 0 for keys, 1 for values.
HeadsView ContextBlock::keys(const Tensor& qkv, const Tensor& packed, int64_t which) const {
  if (!packed.defined()) return fused(qkv, layout.queries_per_group() + which);
  return view_at(packed, which * layout.head_dim, packed_width(), 2 * layout.head_dim);
}

namespace {

/// Copies the keys and values of all groups from one layout to another.
CopyBlocksArgs between(const HeadsView& from, const HeadsView& to, int64_t rows,
                       const HeadLayout& layout, DType dtype) {
  return {.src = from.data,
          .dst = to.data,
          .outer = rows,
          .inner = layout.groups,
          .count = 2 * layout.head_dim,
          .src_outer = from.row_stride,
          .src_inner = from.group_stride,
          .dst_outer = to.row_stride,
          .dst_inner = to.group_stride,
          .accumulate = false,
          .dtype = dtype};
}

}  // namespace

Tensor ContextBlock::pack(ExecutionContext& ctx, const Tensor& qkv) const {
  Tensor packed = ctx.empty({qkv.size(0), packed_width()}, qkv.dtype());
  ctx.kernels().copy_blocks(ctx.stream(),
                            between(fused(qkv, layout.queries_per_group()), keys(qkv, packed, 0),
                                    qkv.size(0), layout, qkv.dtype()));
  return packed;
}

void ContextBlock::add_packed(ExecutionContext& ctx, const Tensor& d_packed,
                              const Tensor& d_qkv) const {
  CopyBlocksArgs args = between(keys(d_qkv, d_packed, 0), fused(d_qkv, layout.queries_per_group()),
                                d_qkv.size(0), layout, DType::f32);
  args.accumulate = true;
  ctx.kernels().copy_blocks(ctx.stream(), args);
}

void ContextBlock::draw(const ExecutionContext& ctx) {
  dropout = dropout_now(ctx, scores);
  first_token = ctx.first_token;
}

AttentionArgs ContextBlock::args(const Tensor& qkv, const Tensor& packed, const AttentionMask& mask,
                                 const Tensor& o, const Tensor& lse) const {
  AttentionDropout draws = dropout;
  draws.first_tokens = mask.first_tokens.data();
  return {.q = fused(qkv, 0),
          .k = keys(qkv, packed, 0),
          .v = keys(qkv, packed, 1),
          .o = o.raw(),
          .lse = lse.data<float>(),
          .cu_seqlens = nullptr,
          .sequences = static_cast<int64_t>(mask.spans.size()),
          .tokens = qkv.size(0),
          .heads = layout.heads,
          .groups = layout.groups,
          .head_dim = layout.head_dim,
          .scale = scores.scale,
          .causal = mask.causal,
          .dtype = qkv.dtype(),
          .spans = mask.spans.data(),
          .window = scores.window,
          .cap = scores.cap,
          .dropout = draws};
}

void ContextBlock::forward(ExecutionContext& ctx, const Tensor& qkv, const Tensor& packed,
                           const AttentionMask& mask, const Tensor& o, const Tensor& lse, bool add,
                           const Tensor& sinks) const {
  if (mask.spans.empty()) return;
  AttentionArgs call = args(qkv, packed, mask, o, lse);
  call.add = add;
  call.sinks = first_sink(sinks, scores);
  ctx.kernels().attention(ctx.stream(), call);
}

void ContextBlock::backward(ExecutionContext& ctx, const Tensor& qkv, const Tensor& packed,
                            const AttentionMask& mask, const Tensor& o, const Tensor& lse,
                            const Tensor& d_o, const Tensor& d_qkv, const Tensor& d_packed) const {
  if (mask.spans.empty()) return;
  ctx.kernels().attention_backward(ctx.stream(), {.forward = args(qkv, packed, mask, o, lse),
                                                  .d_o = d_o.raw(),
                                                  .dq = fused(d_qkv, 0),
                                                  .dk = keys(d_qkv, d_packed, 0),
                                                  .dv = keys(d_qkv, d_packed, 1),
                                                  .add = true});
}

Tensor empty_lse(ExecutionContext& ctx, int64_t heads, int64_t rows) {
  Tensor lse = ctx.empty({heads, rows}, DType::f32);
  ctx.fill(lse, -std::numeric_limits<float>::infinity());
  return lse;
}

Tensor rounded(ExecutionContext& ctx, const Tensor& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  Tensor y = ctx.empty(x.shape(), dtype);
  ctx.copy(y, x);
  return y;
}

}  // namespace mtrain
