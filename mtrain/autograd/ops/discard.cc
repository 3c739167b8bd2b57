// Output-discarding recomputation: passes y on, and restores the discarded tensor in backward.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

struct Discard {  // y = x; before x's op runs backward, `kept` gets its values back
  Tensor kept;

  Tensor forward(ExecutionContext&, const Tensor& x) {
    kept.storage()->release();
    return x;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    GradMode off(ctx, false);
    auto& node = static_cast<TapeNode&>(*kept.node());
    before_values(node);
    Tensor values = node.again(ctx);
    kept.storage()->adopt(*values.storage());
    g[0].give(ctx, dy);
  }
};

bool repeatable(const Tensor& t) {
  auto* node = dynamic_cast<const TapeNode*>(t.node().get());
  return node && node->repeatable();
}

}  // namespace

Tensor discard_until_backward(const Tensor& y, const Tensor& kept) {
  if (!y.context().grad_enabled || !y.node() || !repeatable(kept)) return y;
  MT_CHECK(kept.contiguous() &&
               kept.storage()->bytes() == static_cast<size_t>(kept.numel()) * size_of(kept.dtype()),
           "only a tensor that has its memory for itself can be discarded, not a view");
  return apply(Discard{.kept = kept}, y);
}

}  // namespace mtrain
