// Attention within spans of queries and keys. The probabilities are recomputed from lse in
// backward.
#include "mtrain/autograd/span_attention.h"

#include <algorithm>

#include "mtrain/autograd/ops/compositions.h"

namespace mtrain {
namespace {

struct SpanAttention {
  int64_t heads;
  AttentionSpans spans;
  AttentionScores scores;
  int64_t zero;
  bool all_keys;  // every key is in a span
  Tensor q = {}, k = {}, v = {}, bias = {}, o = {}, lse = {};

  MaybePlacement placed(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                        const Tensor& bias_in) const {
    return ResultPlacement("span_attention", q_in)
        .with(PlacementRule::pointwise, k_in)
        .with(PlacementRule::pointwise, v_in)
        .with(PlacementRule::bias, bias_in)
        .unsharded(0, "each token attends to the whole sequence");
  }
  static Tensor in_float(ExecutionContext& ctx, const Tensor& t) {
    if (t.dtype() == DType::f32) return t;
    Tensor wide = ctx.empty(t.shape(), DType::f32);
    ctx.copy(wide, t);
    return wide;
  }
  HeadsView view(const Tensor& t) const { return {t.raw(), t.size(1), t.size(1) / heads}; }
  AttentionArgs args() const {
    return {.q = view(q),
            .k = view(k),
            .v = view(v),
            .o = o.raw(),
            .lse = lse.data<float>(),
            .cu_seqlens = nullptr,
            .sequences = static_cast<int64_t>(spans->size()),
            .tokens = q.size(0),
            .heads = heads,
            .groups = heads,
            .head_dim = q.size(1) / heads,
            .scale = scores.scale,
            .causal = scores.causal,
            .dtype = q.dtype(),
            .spans = spans->data(),
            .bias = {.values = bias.defined() ? bias.data<float>() : nullptr,
                     .distances = bias.defined() ? bias.size(1) : 0,
                     .zero = zero}};
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                 const Tensor& bias_in) {
    q = q_in.detach(), k = k_in.detach(), v = v_in.detach();
    if (bias_in.defined()) bias = in_float(ctx, bias_in.detach());
    o = ctx.empty(q.shape(), q.dtype());
    lse = ctx.empty({heads, q.size(0)}, DType::f32);
    ctx.kernels().attention(ctx.stream(), args());
    return o;
  }
  /// Gives the gradient of the bias in the bias's own dtype, which is that of the queries.
  void give_rounded(ExecutionContext& ctx, InputGrad& to, const Tensor& d_bias) const {
    if (q.dtype() == DType::f32) return to.give(ctx, d_bias);
    Tensor narrow = ctx.empty(d_bias.shape(), q.dtype());
    ctx.copy(narrow, d_bias);
    to.give(ctx, narrow);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<4>& g) {
    auto gradient = [&](const Tensor& of) {
      return all_keys ? ctx.empty(of.shape(), of.dtype()) : ctx.zeros(of.shape(), of.dtype());
    };
    Tensor dq = ctx.empty(q.shape(), q.dtype()), dk = gradient(k), dv = gradient(v), d_bias;
    if (g[3].wanted()) d_bias = ctx.zeros(bias.shape(), DType::f32);
    ctx.kernels().attention_backward(ctx.stream(),
                                     {.forward = args(),
                                      .d_o = dy.raw(),
                                      .dq = view(dq),
                                      .dk = view(dk),
                                      .dv = view(dv),
                                      .d_bias = d_bias.defined() ? d_bias.data<float>() : nullptr});
    if (g[0].wanted()) g[0].give(ctx, dq);
    if (g[1].wanted()) g[1].give(ctx, dk);
    if (g[2].wanted()) g[2].give(ctx, dv);
    if (g[3].wanted()) give_rounded(ctx, g[3], d_bias);
  }
};

void check_rows(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads) {
  for (const Tensor* t : {&q, &k, &v})
    MT_CHECK(t->contiguous() && t->shape().rank() == 2 && t->size(1) == q.size(1) &&
                 t->dtype() == q.dtype(),
             t->shape(), " of ", name(t->dtype()), " for queries ", q.shape(), " of ",
             name(q.dtype()));
  MT_CHECK(k.size(0) == v.size(0), "keys ", k.shape(), ", values ", v.shape());
  MT_CHECK(heads > 0 && q.size(1) % heads == 0, heads, " heads of ", q.shape());
}

void check_bias(const DistanceBias& bias, int64_t heads, const std::vector<AttentionSpan>& spans,
                bool causal, DType dtype) {
  if (!bias.table_HN.defined()) return;
  const Tensor& table = bias.table_HN;
  MT_CHECK(table.contiguous() && table.shape().rank() == 2 && table.size(0) == heads &&
               table.dtype() == dtype,
           "a bias ", table.shape(), " of ", name(table.dtype()), " for ", heads, " heads");
  for (const AttentionSpan& s : spans) {
    const int64_t nearest = -(int64_t{s.queries} - 1 + s.offset),
                  farthest = causal ? std::min<int64_t>(0, s.keys - 1 - s.offset)
                                    : int64_t{s.keys} - 1 - s.offset;
    MT_CHECK(bias.zero + nearest >= 0 && bias.zero + farthest < table.size(1), table.size(1),
             " distances from ", -bias.zero, " for distances ", nearest, " to ", farthest);
  }
}

}  // namespace

Tensor span_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                      const AttentionSpans& spans, const AttentionScores& scores,
                      const DistanceBias& bias) {
  check_rows(q, k, v, heads);
  MT_CHECK(scores.scale > 0 && scores.window == 0 && scores.cap == 0 && scores.dropout == 0,
           "scores with a window, a cap or dropout");
  int64_t queries = 0, keys = 0;
  for (const AttentionSpan& s : *spans) {
    MT_CHECK(s.first_query >= 0 && s.queries > 0 && s.first_query + s.queries <= q.size(0) &&
                 s.first_key >= 0 && s.keys > 0 && s.first_key + s.keys <= k.size(0),
             "queries ", s.first_query, " + ", s.queries, " of ", q.size(0), ", keys ", s.first_key,
             " + ", s.keys, " of ", k.size(0));
    queries += s.queries, keys += s.keys;
  }
  MT_CHECK(queries == q.size(0) && keys <= k.size(0), queries, " queries and ", keys,
           " keys in spans of ", q.size(0), " and ", k.size(0));
  check_bias(bias, heads, *spans, scores.causal, q.dtype());
  require_kernel(q.context(), q.context().kernels().attention, "attention");
  return apply(SpanAttention{.heads = heads,
                             .spans = spans,
                             .scores = scores,
                             .zero = bias.zero,
                             .all_keys = keys == k.size(0)},
               q, k, v, bias.table_HN);
}

}  // namespace mtrain
