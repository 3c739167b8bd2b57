// The losses of a student that learns the teacher's most likely ids and the rest as one outcome,
// and their gradient. Over a sharded vocabulary, each rank has the terms of its own ids, and the
// one with id 0 that of the rest.
#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

TopKTeacher teacher_of(const Distillation& d) {
  return {.ids = d.ids_TK.data<int32_t>(),
          .log_probabilities = d.log_probabilities_TK.data<float>(),
          .log_rest = d.log_rest_T.data<float>(),
          .k = d.ids_TK.size(1),
          .has_rest = d.ids_TK.size(1) < d.shared};
}

}  // namespace

void top_k_losses(ExecutionContext& ctx, const Tensor& logits, const Tensor& targets,
                  const VocabularyPart& part, const LogitMap& map, const Distillation& d,
                  DistilledRows& out) {
  require_kernel(ctx, ctx.kernels().top_k_logits, "top_k_logits");
  require_kernel(ctx, ctx.kernels().top_k_distillation, "top_k_distillation");
  require_kernel(ctx, ctx.kernels().top_k_distillation_backward, "top_k_distillation_backward");
  const int64_t rows = logits.size(0), k = d.ids_TK.size(1);
  out.own_TK = ctx.empty({rows, k}, DType::f32), out.rest_lse = ctx.empty({rows}, DType::f32);
  ctx.kernels().top_k_logits(ctx.stream(),
                             {.logits = logits.raw(),
                              .ids = d.ids_TK.data<int32_t>(),
                              .targets = targets.data<int32_t>(),
                              .own = out.own_TK.data<float>(),
                              .rest_lse = out.rest_lse.data<float>(),
                              .rows = rows,
                              .cols = logits.size(1),
                              .k = k,
                              .shared_cols = valid_columns(d.shared, logits.size(1), part),
                              .dtype = logits.dtype(),
                              .temperature = d.temperature,
                              .first_col = part.first,
                              .map = map});
  if (part.join) part.join(targets, ctx.zeros({rows}, DType::f32), out.rest_lse);
  ctx.kernels().top_k_distillation(ctx.stream(), {.teacher = teacher_of(d),
                                                  .targets = targets.data<int32_t>(),
                                                  .own = out.own_TK.data<float>(),
                                                  .lse = out.lse.data<float>(),
                                                  .rest_lse = out.rest_lse.data<float>(),
                                                  .divergence = d.divergence_T.data<float>(),
                                                  .mean = out.mean.data<float>(),
                                                  .rows = rows,
                                                  .beta = d.beta,
                                                  .temperature = d.temperature,
                                                  .counts_rest = part.first == 0});
}

void top_k_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                    const Tensor& targets, const Tensor& lse, const Tensor& d_logits, int64_t valid,
                    const VocabularyPart& part, const LogitMap& map, const Distillation& d,
                    const DistilledRows& rows) {
  ctx.kernels().top_k_distillation_backward(
      ctx.stream(), {.teacher = teacher_of(d),
                     .d_loss = d_loss.data<float>(),
                     .logits = logits.raw(),
                     .targets = targets.data<int32_t>(),
                     .own = rows.own_TK.data<float>(),
                     .token_lse = lse.data<float>(),
                     .lse = rows.lse.data<float>(),
                     .rest_lse = rows.rest_lse.data<float>(),
                     .mean = rows.mean.data<float>(),
                     .d_logits = d_logits.raw(),
                     .rows = logits.size(0),
                     .cols = logits.size(1),
                     .shared_cols = valid_columns(d.shared, logits.size(1), part),
                     .valid_cols = valid,
                     .dtype = logits.dtype(),
                     .beta = d.beta,
                     .temperature = d.temperature,
                     .alpha = d.alpha,
                     .first_col = part.first,
                     .map = map});
}

}  // namespace mtrain
