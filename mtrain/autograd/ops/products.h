// The three matrix products of a linear layer (forward and the two gradients) and the gradient of
// its bias, shared by several ops. T tokens, D inputs, N outputs; `accumulate` means "+=". Operands
// may be codes of a low-precision type, with one scale each (GemmArgs). Stateless; for the rank's
// own thread.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// Operands have the same type; but a weight may be codes if its products are in a low-precision
/// type.
inline void check_types(const Tensor& x, const Tensor& w, const QuantizedProducts* quantized) {
  bool fit = x.dtype() == w.dtype() || (quantized && w.dtype() == DType::u8);
  MT_CHECK(fit && x.contiguous() && w.contiguous(), name(x.dtype()), " vs ", name(w.dtype()));
}

/// y[T,N] = x[T,D] · w[N,D]ᵀ + b[N] + addend[T,N]; `b` and `addend` may be undefined.
inline void linear_forward(ExecutionContext& ctx, const Tensor& x, const Tensor& w, const Tensor& b,
                           const Tensor& addend, const Tensor& y, const float* scale_x = nullptr,
                           const float* scale_w = nullptr) {
  int64_t in = x.size(1), out = w.size(0);
  ctx.kernels().gemm(ctx.stream(), {.a = x.raw(),
                                    .b = w.raw(),
                                    .c = y.raw(),
                                    .bias = b.defined() ? b.raw() : nullptr,
                                    .addend = addend.defined() ? addend.raw() : nullptr,
                                    .transpose_b = true,
                                    .m = x.size(0),
                                    .n = out,
                                    .k = in,
                                    .lda = in,
                                    .ldb = in,
                                    .ldc = out,
                                    .dtype = x.dtype(),
                                    .c_dtype = y.dtype(),
                                    .bias_dtype = b.defined() ? b.dtype() : DType::f32,
                                    .scale_a = scale_x,
                                    .scale_b = scale_w});
}

/// dx[T,D] (+)= dy[T,N] · w[N,D].
inline void linear_input_gradient(ExecutionContext& ctx, const Tensor& dy, const Tensor& w,
                                  const Tensor& dx, bool accumulate,
                                  const float* scale_dy = nullptr, const float* scale_w = nullptr) {
  int64_t in = w.size(1), out = w.size(0);
  ctx.kernels().gemm(ctx.stream(), {.a = dy.raw(),
                                    .b = w.raw(),
                                    .c = dx.raw(),
                                    .m = dy.size(0),
                                    .n = in,
                                    .k = out,
                                    .lda = out,
                                    .ldb = in,
                                    .ldc = in,
                                    .beta = accumulate ? 1.0f : 0.0f,
                                    .dtype = dy.dtype(),
                                    .c_dtype = dx.dtype(),
                                    .scale_a = scale_dy,
                                    .scale_b = scale_w});
}

/// dw[N,D] (+)= dy[T,N]ᵀ · x[T,D].
inline void linear_weight_gradient(ExecutionContext& ctx, const Tensor& dy, const Tensor& x,
                                   const Tensor& dw, bool accumulate,
                                   const float* scale_dy = nullptr,
                                   const float* scale_x = nullptr) {
  int64_t in = x.size(1), out = dy.size(1);
  ctx.kernels().gemm(ctx.stream(), {.a = dy.raw(),
                                    .b = x.raw(),
                                    .c = dw.raw(),
                                    .transpose_a = true,
                                    .m = out,
                                    .n = in,
                                    .k = x.size(0),
                                    .lda = out,
                                    .ldb = in,
                                    .ldc = in,
                                    .beta = accumulate ? 1.0f : 0.0f,
                                    .dtype = dy.dtype(),
                                    .c_dtype = dw.dtype(),
                                    .scale_a = scale_dy,
                                    .scale_b = scale_x});
}

/// The number of columns that are not padding, of a matrix with all ids or of one rank's shard.
int64_t valid_columns(int64_t valid_vocab, int64_t columns, const VocabularyPart& part);

/// The placement of the losses, given that of the logits. Vocabulary-parallel losses are joined, so
/// they are the same on all ranks.
ResultPlacement placed_loss(ResultPlacement logits, const VocabularyPart& part);

/// loss[T], lse[T] of logits[T,V], joined over the ranks of a sharded vocabulary. `valid`: the
/// number of columns, from the first one on, that are ids. The loss is that of map(logits).
void cross_entropy_losses(ExecutionContext& ctx, const Tensor& logits, const Tensor& targets,
                          const Tensor& loss, const Tensor& lse, int64_t valid,
                          const VocabularyPart& part, const LogitMap& map);
/// d_logits[T,V], which may be `logits`, from the gradient of each loss and the lse of forward.
void cross_entropy_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                            const Tensor& targets, const Tensor& lse, const Tensor& d_logits,
                            int64_t valid, const VocabularyPart& part, const LogitMap& map);

/// Values that the gradient of a distillation needs in addition to the logits, for some rows: float
/// [T] each.
struct DistilledRows {
  Tensor lse, teacher_lse, mean;
  /// Of a teacher's most likely ids: the student's log-sum-exp of the other ids, and its logits of
  /// these, [T,k].
  Tensor rest_lse, own_TK;
};
/// Slices the members that have one entry for each token to rows [begin, end).
Distillation slice(const Distillation& whole, int64_t begin, int64_t end);
/// loss[T] and lse[T] of a distillation, as cross_entropy_losses() for cross-entropy. Also writes
/// the divergence and the cross-entropy to `distillation`.
DistilledRows distillation_losses(ExecutionContext& ctx, const Tensor& logits,
                                  const Tensor& targets, const Tensor& loss, const Tensor& lse,
                                  int64_t valid, const VocabularyPart& part, const LogitMap& map,
                                  const Distillation& distillation);
/// d_logits[T,V], which may be `logits`.
void distillation_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                           const Tensor& targets, const Tensor& lse, const Tensor& d_logits,
                           int64_t valid, const VocabularyPart& part, const LogitMap& map,
                           const Distillation& distillation, const DistilledRows& rows);
/// The same for a teacher whose most likely ids are known; `out` has the student's lse.
void top_k_losses(ExecutionContext& ctx, const Tensor& logits, const Tensor& targets,
                  const VocabularyPart& part, const LogitMap& map, const Distillation& distillation,
                  DistilledRows& out);
void top_k_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                    const Tensor& targets, const Tensor& lse, const Tensor& d_logits, int64_t valid,
                    const VocabularyPart& part, const LogitMap& map,
                    const Distillation& distillation, const DistilledRows& rows);

/// db[N] (+)= column sums of dy[T,N].
inline void bias_gradient(ExecutionContext& ctx, const Tensor& dy, InputGrad& g) {
  auto [db, accumulate] = g.slot(ctx, {dy.size(1)}, DType::f32);
  MT_CHECK(db.dtype() == DType::f32, "a bias must be a parameter");
  ctx.kernels().column_sum(ctx.stream(), {.x = dy.raw(),
                                          .out = db.data<float>(),
                                          .rows = dy.size(0),
                                          .cols = dy.size(1),
                                          .accumulate = accumulate,
                                          .dtype = dy.dtype()});
}

}  // namespace mtrain
