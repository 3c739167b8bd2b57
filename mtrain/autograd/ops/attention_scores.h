// Internal to ops that call the attention kernels: from AttentionScores to the kernels' arguments.
// Stateless; for the rank's own thread.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// The dropout of a forward that runs now; backward passes the same values.
inline AttentionDropout dropout_now(const ExecutionContext& ctx, const AttentionScores& scores) {
  if (!ctx.training || scores.dropout == 0) return {};
  return {.p = scores.dropout,
          .seed = ctx.seed(),
          .name_key = scores.dropout_key,
          .step = ctx.step,
          .first_head = scores.first_head};
}

/// The sink of the first head; null if there are no sinks.
inline const void* first_sink(const Tensor& sinks, const AttentionScores& scores) {
  if (!sinks.defined()) return nullptr;
  return static_cast<const char*>(sinks.raw()) +
         static_cast<size_t>(scores.first_sink) * size_of(sinks.dtype());
}

/// Adds the gradient of the sinks over all rows of o [rows, H*E], d_o and lse [H, rows].
inline void add_sink_gradient(ExecutionContext& ctx, InputGrad& grad, const Tensor& sinks,
                              const AttentionScores& scores, const HeadLayout& layout,
                              const Tensor& o, const Tensor& d_o, const Tensor& lse) {
  if (!grad.wanted()) return;
  Tensor d_sinks = grad.accumulator(ctx, sinks.shape(), DType::f32);
  ctx.kernels().attention_sink_backward(ctx.stream(),
                                        {.sinks = first_sink(sinks, scores),
                                         .o = o.raw(),
                                         .d_o = d_o.raw(),
                                         .lse = lse.data<float>(),
                                         .d_sinks = d_sinks.data<float>() + scores.first_sink,
                                         .tokens = o.size(0),
                                         .heads = layout.heads,
                                         .head_dim = layout.head_dim,
                                         .dtype = o.dtype()});
}

/// Throws Error(bug) if the scores contradict themselves, or the sinks are not those of the heads.
MT_API void check_scores(const AttentionScores& scores, const HeadLayout& layout, const Tensor& qkv,
                         const Tensor& sinks_H);

}  // namespace mtrain
