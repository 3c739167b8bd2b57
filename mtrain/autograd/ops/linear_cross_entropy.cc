// The output head of a language model, in chunks of tokens: logits = x wᵀ + b, loss, and, while the
// chunk's logits exist, their gradient and the gradients that depend on it. The logits of all
// tokens never exist at the same time.
#include <algorithm>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

/// Rows of one chunk. Each further chunk reads and writes the whole gradient of w once more, which
/// takes as long as the products of about 230 rows on an H200. Therefore the logits of a chunk take
/// up to 16 times the memory of x, which is a few blocks' activations, within fixed limits.
int64_t piece_rows(const Tensor& x, int64_t vocab) {
  constexpr int64_t kLeast = int64_t{128} << 20, kMost = int64_t{1} << 30;
  auto size = static_cast<int64_t>(size_of(x.dtype()));
  int64_t rows = x.size(0), bytes = std::clamp(16 * x.numel() * size, kLeast, kMost),
          most = std::max<int64_t>(1, bytes / (vocab * size)), pieces = (rows + most - 1) / most;
  return pieces <= 1 ? std::max<int64_t>(1, rows) : (rows + pieces - 1) / pieces;
}

struct LinearCrossEntropy {
  Tensor targets;
  int64_t valid = 0;  // number of valid ids in this shard
  VocabularyPart vocabulary;
  LogitMap map;
  float loss_weight = 0;
  DeferredGradients* later = nullptr;  // passed by the caller of forward
  const QuantizedProducts* quantized = nullptr;
  const Distillation* distillation = nullptr;  // only for forward
  Tensor dx;
  bool open = false;  // gradients of w are accumulated already, and backward has not run yet

  MaybePlacement placed(const Tensor& x, const Tensor& w, const Tensor& b) const {
    return placed_loss(ResultPlacement("linear_cross_entropy", x)
                           .with(PlacementRule::linear, w)
                           .with(PlacementRule::bias, b),
                       vocabulary);
  }
  /// The losses of some rows, from `begin` on. Where `weights` is defined, the logits become their
  /// gradients.
  void to_losses(ExecutionContext& ctx, const Tensor& logits, int64_t begin, const Tensor& targets,
                 const Tensor& loss, const Tensor& lse, const Tensor& weights) const {
    if (distillation) {
      const Distillation some = slice(*distillation, begin, begin + logits.size(0));
      const DistilledRows rows =
          distillation_losses(ctx, logits, targets, loss, lse, valid, vocabulary, map, some);
      if (weights.defined())
        distillation_gradient(ctx, weights, logits, targets, lse, logits, valid, vocabulary, map,
                              some, rows);
      return;
    }
    cross_entropy_losses(ctx, logits, targets, loss, lse, valid, vocabulary, map);
    if (weights.defined())
      cross_entropy_gradient(ctx, weights, logits, targets, lse, logits, valid, vocabulary, map);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x, const Tensor& w, const Tensor& b) {
    int64_t rows = x.size(0), vocab = w.size(0),
            piece = piece_rows(x, std::max(vocab, vocabulary.largest));
    Tensor loss = ctx.empty({rows}, DType::f32), lse = ctx.empty({rows}, DType::f32);
    bool record = ctx.grad_enabled;
    auto gradient_of = [&](const Tensor& t) {
      return InputGrad(record && t.defined() ? static_cast<GradTarget*>(t.node().get()) : nullptr,
                       later);
    };
    InputGrad dw = gradient_of(w), db = gradient_of(b);
    open = dw.wanted() || db.wanted();
    ctx.open_losses += open;
    Tensor weights;  // the gradient of each token's loss
    if (record) {
      MemoryScope use(ctx.memory(), MemoryUse::backward);
      if (x.node()) dx = ctx.empty(x.shape(), x.dtype());
      weights =
          ctx.from_host<float>(std::vector<float>(static_cast<size_t>(rows), loss_weight), {rows});
    }
    QuantizedProducts::Operand matrix{
        w.detach(), quantized ? quantized->measure(ctx, w, QuantOperand::weight) : Tensor()};
    for (int64_t begin = 0; begin < rows; begin += piece) {
      int64_t end = std::min(rows, begin + piece);
      auto part = [&](const Tensor& t) { return t.slice(0, begin, end); };
      Tensor logits = ctx.empty({end - begin, vocab}, x.dtype());
      QuantizedProducts::Operand in, top;
      if (quantized)
        quantized->forward(ctx, in = quantized->prepare(ctx, part(x), QuantOperand::input), matrix,
                           b, {}, logits);
      else
        linear_forward(ctx, part(x), w, b, {}, logits);
      const bool backward = dx.defined() || open;
      to_losses(ctx, logits, begin, part(targets), part(loss), part(lse),
                backward ? part(weights) : Tensor());
      if (!backward) continue;
      if (db.wanted())
        db.compute([&ctx, logits](InputGrad& bias) { bias_gradient(ctx, logits, bias); });
      if (quantized) top = quantized->prepare(ctx, logits, QuantOperand::gradient);
      if (dx.defined() && quantized)
        quantized->input_gradient(ctx, top, matrix, part(dx), false, ctx.first_token + begin);
      else if (dx.defined())
        linear_input_gradient(ctx, logits, w, part(dx), false);
      if (!dw.wanted()) continue;
      dw.compute([&ctx, logits, top, in, quantized = quantized, token = ctx.first_token + begin,
                  piece_of_x = part(x).detach(), shape = w.shape(),
                  dtype = w.dtype()](InputGrad& weight) {
        auto [out, accumulate] = weight.slot(ctx, shape, dtype);
        if (quantized)
          quantized->weight_gradient(ctx, top, in, out, accumulate, token);
        else
          linear_weight_gradient(ctx, logits, piece_of_x, out, accumulate);
      });
    }
    later = nullptr, distillation = nullptr;
    return loss;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    ctx.open_losses -= std::exchange(open, false);
    if (ctx.backend().computes()) check_weights(ctx, dy);
    if (g[0].wanted()) g[0].give(ctx, std::exchange(dx, {}));
  }

  void check_weights(ExecutionContext& ctx, const Tensor& dy) const {
    std::vector<float> given(static_cast<size_t>(dy.numel()));
    ctx.download(dy, given.data());
    MT_CHECK(std::all_of(given.begin(), given.end(), [&](float v) { return v == loss_weight; }),
             "losses of linear_cross_entropy were weighted by another factor than loss_weight (",
             loss_weight, "); set it to 0, or return the losses unchanged");
  }
};

/// If the matrix is itself the result of an op, its gradient accumulates in its own dtype, which is
/// too imprecise for many partial sums.
bool takes_partial_sums(const Tensor& w) {
  return !w.node() || static_cast<const GradTarget*>(w.node().get())->is_leaf;
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& targets,
                            int64_t valid_vocab, float loss_weight, const VocabularyPart& part,
                            DeferredGradients* later, const QuantizedProducts* quantized,
                            const Tensor& b, const LogitMap& map,
                            const Distillation* distillation) {
  if (x.context().grad_enabled && (loss_weight == 0 || !takes_partial_sums(w)))
    return cross_entropy(linear(x, w, b, {}, quantized), targets, valid_vocab, part, map,
                         distillation);
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.size(1) == w.size(1), "x ",
           x.shape(), ", w ", w.shape());
  MT_CHECK(x.contiguous() && w.contiguous() && x.dtype() == w.dtype(), name(x.dtype()), " vs ",
           name(w.dtype()));
  MT_CHECK(!b.defined() || (b.numel() == w.size(0) && b.contiguous()), "bias of ", w.size(0),
           " outputs");
  MT_CHECK(targets.numel() == x.size(0), x.shape(), ", targets ", targets.shape());
  MT_CHECK(valid_vocab > 0 && (part.join || valid_vocab <= w.size(0)), valid_vocab, " of ",
           w.size(0));
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
  require_kernel(x.context(), x.context().kernels().cross_entropy, "cross_entropy");
  int64_t valid = valid_columns(valid_vocab, w.size(0), part);
  return apply(LinearCrossEntropy{.targets = targets,
                                  .valid = valid,
                                  .vocabulary = part,
                                  .map = map,
                                  .loss_weight = loss_weight,
                                  .later = later,
                                  .quantized = quantized,
                                  .distillation = distillation},
               x, w, b);
}

}  // namespace mtrain
