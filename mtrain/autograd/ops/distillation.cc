// The losses of a student that learns a teacher's distribution, and their gradient. All sums over a
// sharded vocabulary are joined over its ranks: first log-sum-exp, with which each rank knows the
// probabilities of its ids, then the divergence.
#include <algorithm>

#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

LogitMap at_temperature(const LogitMap& map, float temperature) {
  return {.scale = map.scale / temperature, .cap = map.cap / temperature};
}

/// The number of columns of `logits` that both models have.
int64_t shared_columns(const Distillation& d, const Tensor& logits, const VocabularyPart& part) {
  const int64_t valid = valid_columns(d.shared, logits.size(1), part);
  return d.ids_TK.defined() ? valid : std::min(valid, d.teacher_TV.size(1));
}

void check_logits(const Distillation& d, const Tensor& logits, const VocabularyPart& part) {
  const Tensor& teacher = d.teacher_TV;
  MT_CHECK(teacher.defined() && teacher.shape().rank() == 2 && teacher.contiguous() &&
               teacher.size(0) == logits.size(0) && teacher.dtype() == logits.dtype(),
           "the teacher's logits do not fit ", logits.shape());
  MT_CHECK(!part.join || (part.add && teacher.size(1) == logits.size(1)),
           "a sharded vocabulary: the teacher has ", teacher.shape(), ", the student ",
           logits.shape());
  MT_CHECK(part.join || d.shared <= teacher.size(1), d.shared, " shared ids of ", teacher.shape());
}

void check_ids(const Distillation& d, const Tensor& logits, const VocabularyPart& part) {
  const Tensor& ids = d.ids_TK;
  MT_CHECK(ids.shape().rank() == 2 && ids.contiguous() && ids.dtype() == DType::i32 &&
               ids.size(0) == logits.size(0) && ids.size(1) > 0 && ids.size(1) <= d.shared,
           "the teacher's ids ", ids.shape(), " do not fit ", logits.shape(), " with ", d.shared,
           " shared ids");
  MT_CHECK(d.log_probabilities_TK.shape() == ids.shape() &&
               d.log_probabilities_TK.dtype() == DType::f32 &&
               d.log_probabilities_TK.contiguous() && d.log_rest_T.numel() == ids.size(0) &&
               d.log_rest_T.dtype() == DType::f32,
           "log-probabilities ", d.log_probabilities_TK.shape(), " of ids ", ids.shape());
  MT_CHECK(!part.join || part.add, "a sharded vocabulary whose sums cannot be joined");
}

void check(const Distillation& d, const Tensor& logits, const VocabularyPart& part) {
  d.ids_TK.defined() ? check_ids(d, logits, part) : check_logits(d, logits, part);
  MT_CHECK(d.shared > 0 && (part.join || d.shared <= logits.size(1)), d.shared, " shared ids of ",
           logits.shape());
  MT_CHECK(d.temperature > 0 && d.beta >= 0 && d.beta <= 1 && d.alpha >= 0 && d.alpha <= 1,
           "temperature ", d.temperature, ", beta ", d.beta, ", alpha ", d.alpha);
}

void weighted_sum(ExecutionContext& ctx, const Tensor& a, float of_a, const Tensor& b, float of_b,
                  const Tensor& out) {
  // out = of_a a + of_b b, without a kernel for two factors.
  const Tensor zero = ctx.zeros(a.shape(), DType::f32), scaled = ctx.empty(a.shape(), DType::f32);
  auto add = [&](const Tensor& x, float factor, const Tensor& y, const Tensor& z) {
    ctx.kernels().add(ctx.stream(), {.a = x.raw(),
                                     .b = y.raw(),
                                     .y = z.raw(),
                                     .count = z.numel(),
                                     .dtype = DType::f32,
                                     .factor = factor});
  };
  add(zero, of_a, a, scaled);
  add(scaled, of_b, b, out);
}

/// The divergence of the whole distributions. `unused` receives other losses.
void whole_losses(ExecutionContext& ctx, const Tensor& logits, const Tensor& targets,
                  const Tensor& unused, int64_t shared, const VocabularyPart& part,
                  const LogitMap& map, const Distillation& d, DistilledRows& out) {
  require_kernel(ctx, ctx.kernels().distillation, "distillation");
  require_kernel(ctx, ctx.kernels().distillation_backward, "distillation_backward");
  out.teacher_lse = ctx.empty({logits.size(0)}, DType::f32);
  cross_entropy_losses(ctx, d.teacher_TV, targets, unused, out.teacher_lse, shared, part,
                       at_temperature({}, d.temperature));
  ctx.kernels().distillation(ctx.stream(), {.logits = logits.raw(),
                                            .teacher = d.teacher_TV.raw(),
                                            .targets = targets.data<int32_t>(),
                                            .lse = out.lse.data<float>(),
                                            .teacher_lse = out.teacher_lse.data<float>(),
                                            .divergence = d.divergence_T.data<float>(),
                                            .mean = out.mean.data<float>(),
                                            .rows = logits.size(0),
                                            .cols = logits.size(1),
                                            .teacher_cols = d.teacher_TV.size(1),
                                            .shared_cols = shared,
                                            .dtype = logits.dtype(),
                                            .beta = d.beta,
                                            .temperature = d.temperature,
                                            .map = map});
}

}  // namespace

Distillation slice(const Distillation& whole, int64_t begin, int64_t end) {
  Distillation some = whole;
  for (Tensor* one : {&some.teacher_TV, &some.ids_TK, &some.log_probabilities_TK, &some.log_rest_T,
                      &some.divergence_T, &some.cross_entropy_T})
    if (one->defined()) *one = one->slice(0, begin, end);
  return some;
}

DistilledRows distillation_losses(ExecutionContext& ctx, const Tensor& logits,
                                  const Tensor& targets, const Tensor& loss, const Tensor& lse,
                                  int64_t valid, const VocabularyPart& part, const LogitMap& map,
                                  const Distillation& d) {
  check(d, logits, part);
  const int64_t rows = logits.size(0), shared = shared_columns(d, logits, part);
  auto floats = [&] { return ctx.empty({rows}, DType::f32); };
  const Tensor unused = floats();
  DistilledRows out{.lse = lse, .mean = floats()};
  cross_entropy_losses(ctx, logits, targets, d.cross_entropy_T, lse, valid, part, map);
  if (d.temperature != 1 || shared != valid || part.join) {
    out.lse = floats();
    cross_entropy_losses(ctx, logits, targets, unused, out.lse, shared, part,
                         at_temperature(map, d.temperature));
  }
  if (d.ids_TK.defined())
    top_k_losses(ctx, logits, targets, part, map, d, out);
  else
    whole_losses(ctx, logits, targets, unused, shared, part, map, d, out);
  if (part.add) part.add(d.divergence_T), part.add(out.mean);
  weighted_sum(ctx, d.cross_entropy_T, d.alpha, d.divergence_T, 1 - d.alpha, loss);
  return out;
}

void distillation_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                           const Tensor& targets, const Tensor& lse, const Tensor& d_logits,
                           int64_t valid, const VocabularyPart& part, const LogitMap& map,
                           const Distillation& d, const DistilledRows& rows) {
  if (d.ids_TK.defined())
    return top_k_gradient(ctx, d_loss, logits, targets, lse, d_logits, valid, part, map, d, rows);
  ctx.kernels().distillation_backward(ctx.stream(), {.d_loss = d_loss.data<float>(),
                                                     .logits = logits.raw(),
                                                     .teacher = d.teacher_TV.raw(),
                                                     .targets = targets.data<int32_t>(),
                                                     .token_lse = lse.data<float>(),
                                                     .lse = rows.lse.data<float>(),
                                                     .teacher_lse = rows.teacher_lse.data<float>(),
                                                     .mean = rows.mean.data<float>(),
                                                     .d_logits = d_logits.raw(),
                                                     .rows = logits.size(0),
                                                     .cols = logits.size(1),
                                                     .teacher_cols = d.teacher_TV.size(1),
                                                     .shared_cols = shared_columns(d, logits, part),
                                                     .valid_cols = valid,
                                                     .dtype = logits.dtype(),
                                                     .beta = d.beta,
                                                     .temperature = d.temperature,
                                                     .alpha = d.alpha,
                                                     .first_col = part.first,
                                                     .map = map});
}

}  // namespace mtrain
