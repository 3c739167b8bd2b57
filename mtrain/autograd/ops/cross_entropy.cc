// loss[t] = lse[t] - logits[t, target[t]];  d_logits = (softmax - onehot) * d_loss[t].
#include <algorithm>
#include <optional>

#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

struct CrossEntropy {
  Tensor targets;
  int64_t valid = 0;  // number of valid columns in this tensor
  VocabularyPart part;
  LogitMap map;
  std::optional<Distillation> distillation;
  Tensor logits, lse;
  DistilledRows distilled;

  MaybePlacement placed(const Tensor& in) const {
    return placed_loss(ResultPlacement("cross_entropy", in), part);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& logits_in) {
    logits = logits_in.detach();
    Tensor loss = ctx.empty({logits.size(0)}, DType::f32);
    lse = ctx.empty({logits.size(0)}, DType::f32);
    if (!distillation) {
      cross_entropy_losses(ctx, logits, targets, loss, lse, valid, part, map);
      return loss;
    }
    distilled =
        distillation_losses(ctx, logits, targets, loss, lse, valid, part, map, *distillation);
    if (!ctx.grad_enabled) distillation.reset();
    return loss;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor d_logits = logits.unique() ? logits : ctx.empty(logits.shape(), logits.dtype());
    if (distillation)
      distillation_gradient(ctx, dy, logits, targets, lse, d_logits, valid, part, map,
                            *distillation, distilled);
    else
      cross_entropy_gradient(ctx, dy, logits, targets, lse, d_logits, valid, part, map);
    logits = {}, distillation.reset();
    g[0].give(ctx, d_logits);
  }
};

}  // namespace

int64_t valid_columns(int64_t valid_vocab, int64_t columns, const VocabularyPart& part) {
  return part.join ? std::clamp<int64_t>(valid_vocab - part.first, 0, columns) : valid_vocab;
}

void cross_entropy_losses(ExecutionContext& ctx, const Tensor& logits, const Tensor& targets,
                          const Tensor& loss, const Tensor& lse, int64_t valid,
                          const VocabularyPart& part, const LogitMap& map) {
  ctx.kernels().cross_entropy(ctx.stream(), {.logits = logits.raw(),
                                             .targets = targets.data<int32_t>(),
                                             .loss = loss.data<float>(),
                                             .lse = lse.data<float>(),
                                             .rows = logits.size(0),
                                             .cols = logits.size(1),
                                             .valid_cols = valid,
                                             .dtype = logits.dtype(),
                                             .part = part.join != nullptr,
                                             .first_col = part.first,
                                             .map = map});
  if (part.join) part.join(targets, loss, lse);
}

void cross_entropy_gradient(ExecutionContext& ctx, const Tensor& d_loss, const Tensor& logits,
                            const Tensor& targets, const Tensor& lse, const Tensor& d_logits,
                            int64_t valid, const VocabularyPart& part, const LogitMap& map) {
  ctx.kernels().cross_entropy_backward(ctx.stream(), {.d_loss = d_loss.data<float>(),
                                                      .logits = logits.raw(),
                                                      .targets = targets.data<int32_t>(),
                                                      .lse = lse.data<float>(),
                                                      .d_logits = d_logits.raw(),
                                                      .rows = logits.size(0),
                                                      .cols = logits.size(1),
                                                      .valid_cols = valid,
                                                      .dtype = logits.dtype(),
                                                      .first_col = part.first,
                                                      .map = map});
}

ResultPlacement placed_loss(ResultPlacement logits, const VocabularyPart& part) {
  if (part.join)
    return logits.turn(Placement::S(1), Placement::I(),
                       "each rank must have the logits of its own part of the vocabulary");
  return logits.with(PlacementRule::pointwise)
      .unsharded(1, "a token's loss is over the whole vocabulary");
}

Tensor cross_entropy(Tensor&& logits, const Tensor& targets, int64_t valid_vocab) {
  return cross_entropy(std::move(logits), targets, valid_vocab, {});
}

Tensor cross_entropy(Tensor&& logits, const Tensor& targets, int64_t valid_vocab,
                     const VocabularyPart& part, const LogitMap& map,
                     const Distillation* distillation) {
  MT_CHECK(logits.shape().rank() == 2 && targets.numel() == logits.size(0), logits.shape(),
           ", targets ", targets.shape());
  MT_CHECK(logits.contiguous(), logits.shape());
  MT_CHECK(valid_vocab > 0 && (part.join || valid_vocab <= logits.size(1)), valid_vocab, " of ",
           logits.size(1));
  require_kernel(logits.context(), logits.context().kernels().cross_entropy, "cross_entropy");
  Tensor own = std::move(logits);
  int64_t valid = valid_columns(valid_vocab, own.size(1), part);
  return apply(
      CrossEntropy{.targets = targets,
                   .valid = valid,
                   .part = part,
                   .map = map,
                   .distillation = distillation ? std::optional(*distillation) : std::nullopt},
      own);
}

}  // namespace mtrain
