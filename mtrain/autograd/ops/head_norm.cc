// Norms of query and key heads, in place on the fused projection.
#include "mtrain/autograd/ops/compositions.h"
#include "mtrain/autograd/projection_ops.h"

namespace mtrain {
namespace {

using Rows = HeadNormForm::Rows;

struct HeadNorm {  // y = norm(x) of queries and keys, y = x of values
  HeadLayout layout;
  HeadNormForm form;
  struct Part {  // the queries, or the keys
    Tensor w, b, kept, mean, rstd;
  };
  Part queries, keys;

  MaybePlacement placed(const Tensor& qkv, const Tensor& q, const Tensor& qb, const Tensor& k,
                        const Tensor& kb) const {
    const bool apart = qkv.placement() == Placement::S(1);
    ResultPlacement result("head_norm", qkv);
    result.with(PlacementRule::pointwise);
    if (form.rows == Rows::all_heads && !form.join)
      result.unsharded(1, "each rank would normalize a part of a token's heads");
    for (const Tensor* w : {&q, &qb, &k, &kb}) {
      if (!w->defined()) continue;
      if (form.rows != Rows::head || !apart)
        result.with(PlacementRule::bias, *w);
      else
        ResultPlacement("head_norm", *w)
            .turn(Placement::R(), Placement::S(1),
                  "each rank has other heads, so the gradients of weights are partial sums");
    }
    return result;
  }
  Tensor composition(const Tensor& qkv, const Tensor& q, const Tensor& qb, const Tensor& k,
                     const Tensor& kb) const {
    return plain::head_norm(qkv, layout, form, {q, qb, k, kb});
  }

  int64_t heads_of(const Part& part) const {
    return &part == &queries ? layout.queries_per_group() : 1;
  }
  HeadsView view(const Tensor& qkv, const Part& part) const {
    const int64_t first = &part == &queries ? 0 : layout.queries_per_group() * layout.head_dim;
    auto* base = static_cast<char*>(qkv.raw()) + static_cast<size_t>(first) * size_of(qkv.dtype());
    return {base, layout.width(), layout.group_stride()};
  }
  /// The number of elements in a row of the norm over all ranks.
  int64_t width(const Part& part) const {
    return (&part == &queries ? form.whole.heads : form.whole.groups) * layout.head_dim;
  }
  static const void* raw(const Tensor& t) { return t.defined() ? t.raw() : nullptr; }
  static float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

  /// The sums of both parts over all ranks, [2, T]: of squares, or of dy*w*x in backward.
  Tensor joined_sums(ExecutionContext& ctx, const Tensor& x, bool backward) const {
    if (!form.join) return {};
    const int64_t tokens = x.size(0);
    Tensor sums = ctx.zeros({2, tokens}, DType::f32);
    for (const Part* part : {&queries, &keys})
      if (backward || part == &queries || form.counts_keys)
        ctx.kernels().head_sums(ctx.stream(),
                                {.x = view(x, *part),
                                 .kept = backward ? part->kept.raw() : nullptr,
                                 .w = part->w.raw(),
                                 .out = sums.data<float>() + (part == &queries ? 0 : tokens),
                                 .tokens = tokens,
                                 .groups = layout.groups,
                                 .heads = heads_of(*part),
                                 .head_dim = layout.head_dim,
                                 .dtype = x.dtype()});
    form.join(sums);
    // Copies of a key have partial gradients, and one of them gets what its row contributes.
    if (backward && !form.counts_keys) ctx.fill_zero(sums.slice(0, 1, 2));
    return sums;
  }
  const float* sums_of(const Tensor& sums, const Part& part) const {
    if (!sums.defined()) return nullptr;
    return sums.data<float>() + (&part == &queries ? 0 : sums.size(1));
  }

  void normalize(ExecutionContext& ctx, const Tensor& x, Part& part, const Tensor& sums) {
    const int64_t tokens = x.size(0), heads = layout.groups * heads_of(part);
    const bool whole = form.rows == Rows::all_heads;
    const Shape rows = {whole ? tokens : tokens * heads};
    part.rstd = ctx.empty(rows, DType::f32);
    if (form.layer) part.mean = ctx.empty(rows, DType::f32);
    if (ctx.grad_enabled) part.kept = ctx.empty({tokens, heads * layout.head_dim}, x.dtype());
    ctx.kernels().head_norm(ctx.stream(), {.x = view(x, part),
                                           .kept = part.kept.defined() ? part.kept.raw() : nullptr,
                                           .w = part.w.raw(),
                                           .b = raw(part.b),
                                           .mean = floats(part.mean),
                                           .rstd = part.rstd.data<float>(),
                                           .tokens = tokens,
                                           .groups = layout.groups,
                                           .heads = heads_of(part),
                                           .head_dim = layout.head_dim,
                                           .own_weights = form.rows != Rows::head,
                                           .whole = whole,
                                           .eps = form.eps,
                                           .dtype = x.dtype(),
                                           .sums = sums_of(sums, part),
                                           .width = width(part),
                                           .offset = form.offset});
  }
  static Tensor writable(ExecutionContext& ctx, const Tensor& x, bool exclusive) {
    if (exclusive) return x.detach();
    Tensor copy = ctx.empty(x.shape(), x.dtype());
    ctx.copy(copy, x);
    return copy;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x, const Tensor& q, const Tensor& qb,
                 const Tensor& k, const Tensor& kb) {
    Tensor y = writable(ctx, x, x.unique());
    queries.w = q.detach(), keys.w = k.detach();
    if (qb.defined()) queries.b = qb.detach();
    if (kb.defined()) keys.b = kb.detach();
    Tensor sums = joined_sums(ctx, y, false);
    for (Part* part : {&queries, &keys}) normalize(ctx, y, *part, sums);
    return y;
  }

  void differentiate(ExecutionContext& ctx, const Tensor& dx, const Part& part, const Tensor& sums,
                     InputGrad& w, InputGrad& b) const {
    InputGrad::Slot dw{}, db{};
    if (w.wanted()) dw = w.slot(ctx, part.w.shape(), DType::f32);
    if (b.wanted()) db = b.slot(ctx, part.w.shape(), DType::f32);
    ctx.kernels().head_norm_backward(ctx.stream(), {.dx = view(dx, part),
                                                    .kept = part.kept.raw(),
                                                    .w = part.w.raw(),
                                                    .mean = floats(part.mean),
                                                    .rstd = part.rstd.data<float>(),
                                                    .dw = floats(dw.out),
                                                    .db = floats(db.out),
                                                    .tokens = dx.size(0),
                                                    .groups = layout.groups,
                                                    .heads = heads_of(part),
                                                    .head_dim = layout.head_dim,
                                                    .own_weights = form.rows != Rows::head,
                                                    .whole = form.rows == Rows::all_heads,
                                                    .accumulate_dw = dw.accumulate,
                                                    .accumulate_db = db.accumulate,
                                                    .dtype = dx.dtype(),
                                                    .sums = sums_of(sums, part),
                                                    .width = width(part),
                                                    .offset = form.offset});
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<5>& g) {
    Tensor dx = writable(ctx, dy, dy.unique());
    Tensor sums = joined_sums(ctx, dx, true);
    differentiate(ctx, dx, queries, sums, g[1], g[2]);
    differentiate(ctx, dx, keys, sums, g[3], g[4]);
    if (g[0].wanted()) g[0].give(ctx, dx);
  }
};

void check_head_norm(const Tensor& qkv, const HeadLayout& layout, const HeadNormForm& form,
                     const HeadNormWeights& weights) {
  MT_CHECK(layout.groups > 0 && layout.heads % layout.groups == 0, layout.heads, " heads, ",
           layout.groups, " groups");
  MT_CHECK(qkv.contiguous() && qkv.shape().rank() == 2 && qkv.size(1) == layout.width(),
           qkv.shape(), " for width ", layout.width());
  MT_CHECK(form.rows != Rows::all_heads || !form.layer, "LayerNorm over all heads of a token");
  auto fits = [&](const Tensor& w, int64_t heads) {
    const int64_t size = (form.rows == Rows::head ? 1 : heads) * layout.head_dim;
    MT_CHECK(w.contiguous() && w.numel() == size && w.dtype() == qkv.dtype(), w.shape(), " ",
             name(w.dtype()), " for ", size, " weights, ", name(qkv.dtype()));
  };
  fits(weights.q, layout.heads), fits(weights.k, layout.groups);
  if (weights.q_bias.defined()) fits(weights.q_bias, layout.heads);
  if (weights.k_bias.defined()) fits(weights.k_bias, layout.groups);
  MT_CHECK(form.layer || (!weights.q_bias.defined() && !weights.k_bias.defined()),
           "an RMSNorm has no bias");
}

}  // namespace

Tensor head_norm(Tensor&& qkv, const HeadLayout& layout, const HeadNormForm& form,
                 const HeadNormWeights& weights) {
  check_head_norm(qkv, layout, form, weights);
  Tensor own = std::move(qkv);
  const KernelTable& kernels = own.context().kernels();
  return apply_or_compose(kernels.head_norm && kernels.head_norm_backward && kernels.head_sums,
                          HeadNorm{.layout = layout, .form = form, .queries = {}, .keys = {}}, own,
                          weights.q, weights.q_bias, weights.k, weights.k_bias);
}

}  // namespace mtrain
