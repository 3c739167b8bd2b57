#include "mtrain/autograd/cached_attention.h"

#include "mtrain/autograd/ops/attention_scores.h"
#include "mtrain/autograd/ops/compositions.h"

namespace mtrain {
namespace {

void check_cached(const Tensor& qkv, const HeadLayout& layout, const Tensor& kv,
                  const std::vector<AttentionSpan>& spans) {
  MT_CHECK(qkv.contiguous() && qkv.shape().rank() == 2 && qkv.size(1) == layout.width(),
           qkv.shape(), " for width ", layout.width());
  MT_CHECK(kv.contiguous() && kv.shape().rank() == 2 &&
               kv.size(1) == layout.groups * 2 * layout.head_dim && kv.dtype() == qkv.dtype(),
           kv.shape(), " of ", name(kv.dtype()), " for ", layout.groups, " groups of ",
           layout.head_dim, " of ", name(qkv.dtype()));
  int64_t row = 0;
  for (const AttentionSpan& s : spans) {
    MT_CHECK(s.first_query == row && s.queries > 0 && s.offset >= 0 &&
                 s.keys == s.offset + s.queries && s.first_key >= 0 &&
                 s.first_key + s.keys <= kv.size(0),
             "queries ", s.first_query, " + ", s.queries, " after ", row, ", keys ", s.first_key,
             " + ", s.keys, " of ", kv.size(0), ", offset ", s.offset);
    row += s.queries;
  }
  MT_CHECK(row == qkv.size(0), row, " queries in spans of ", qkv.size(0));
}

struct CachedAttention {
  HeadLayout layout;
  AttentionSpans spans;
  AttentionScores scores;

  MaybePlacement placed(const Tensor& qkv, const Tensor& /*kv*/, const Tensor& sinks) const {
    return ResultPlacement("cached_attention", qkv)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::bias, sinks)
        .unsharded(0, "each token attends to the whole text");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv, const Tensor& kv, const Tensor& sinks) {
    const int64_t tokens = qkv.size(0), pair = 2 * layout.head_dim;
    Tensor o = ctx.empty({tokens, layout.heads * layout.head_dim}, qkv.dtype());
    Tensor lse = ctx.empty({layout.heads, tokens}, DType::f32);
    const auto bytes = static_cast<size_t>(layout.head_dim) * size_of(kv.dtype());
    ctx.kernels().attention(ctx.stream(),
                            {.q = {qkv.raw(), layout.width(), layout.group_stride()},
                             .k = {kv.raw(), kv.size(1), pair},
                             .v = {static_cast<char*>(kv.raw()) + bytes, kv.size(1), pair},
                             .o = o.raw(),
                             .lse = lse.data<float>(),
                             .cu_seqlens = nullptr,
                             .sequences = static_cast<int64_t>(spans->size()),
                             .tokens = tokens,
                             .heads = layout.heads,
                             .groups = layout.groups,
                             .head_dim = layout.head_dim,
                             .scale = scores.scale,
                             .causal = true,
                             .dtype = qkv.dtype(),
                             .spans = spans->data(),
                             .window = scores.window,
                             .cap = scores.cap,
                             .sinks = first_sink(sinks, scores)});
    return o;
  }
  void backward(ExecutionContext& /*ctx*/, const Tensor& /*dy*/, Grads<3>& /*g*/) {
    MT_CHECK(false, "cached attention has no gradient");
  }
};

}  // namespace

void store_keys(const Tensor& qkv, const HeadLayout& layout, const Tensor& kv,
                const AttentionSpans& spans) {
  check_cached(qkv, layout, kv, *spans);
  ExecutionContext& ctx = qkv.context();
  require_kernel(ctx, ctx.kernels().copy_blocks, "copy_blocks");
  const int64_t pair = 2 * layout.head_dim;
  const auto word = size_of(qkv.dtype());
  const int64_t first_key = layout.queries_per_group() * layout.head_dim;
  for (const AttentionSpan& s : *spans) {
    const int64_t from = s.first_query * layout.width() + first_key,
                  to = (int64_t{s.first_key} + s.offset) * kv.size(1);
    ctx.kernels().copy_blocks(
        ctx.stream(),
        {.src = static_cast<const char*>(qkv.raw()) + static_cast<size_t>(from) * word,
         .dst = static_cast<char*>(kv.raw()) + static_cast<size_t>(to) * word,
         .outer = s.queries,
         .inner = layout.groups,
         .count = pair,
         .src_outer = layout.width(),
         .src_inner = layout.group_stride(),
         .dst_outer = kv.size(1),
         .dst_inner = pair,
         .accumulate = false,
         .dtype = qkv.dtype()});
  }
}

Tensor cached_attention(const Tensor& qkv, const HeadLayout& layout, const Tensor& kv,
                        const AttentionSpans& spans, const AttentionScores& scores,
                        const Tensor& sinks) {
  check_cached(qkv, layout, kv, *spans);
  check_scores(scores, layout, qkv, sinks);
  ExecutionContext& ctx = qkv.context();
  MT_CHECK(scores.causal && !ctx.grad_enabled, "cached attention is causal and has no gradient");
  require_kernel(ctx, ctx.kernels().attention, "attention");
  return apply(CachedAttention{.layout = layout, .spans = spans, .scores = scores}, qkv, kv, sinks);
}

}  // namespace mtrain
