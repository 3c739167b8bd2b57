// Output-discarding recomputation: passes y on, and restores the discarded tensor in backward.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

struct Discard {  // y = x; before x's op runs backward, `discarded` gets its values back
  Tensor discarded;

  Tensor forward(ExecutionContext&, const Tensor& x) {
    discarded.storage()->release();
    return x;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    GradMode off(ctx, false);
    auto& node = static_cast<TapeNode&>(*discarded.node());
    before_values(node);
    Tensor values = node.recompute(ctx);
    discarded.storage()->adopt(*values.storage());
    g[0].give(ctx, dy);
  }
};

bool can_recompute(const Tensor& t) {
  auto* node = dynamic_cast<const TapeNode*>(t.node().get());
  return node && node->can_recompute();
}

}  // namespace

Tensor discard_until_backward(const Tensor& y, const Tensor& discarded) {
  if (!y.context().grad_enabled || !y.node() || !can_recompute(discarded)) return y;
  const size_t bytes = static_cast<size_t>(discarded.numel()) * size_of(discarded.dtype());
  MT_CHECK(discarded.contiguous() && discarded.storage()->bytes() == bytes,
           "only a tensor that has its memory for itself can be discarded, not a view");
  return apply(Discard{.discarded = discarded}, y);
}

}  // namespace mtrain
