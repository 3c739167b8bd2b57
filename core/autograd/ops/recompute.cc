// One op whose backward replays its forward with the tape on.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

// The end of the inner tape: catches the gradient of the block's input.
class Catch final : public GradTarget {};

struct Recompute {
  std::function<Tensor(const Tensor&)> block;
  Tensor x;

  Tensor forward(Run& run, const Tensor& x_in) {
    x = x_in.detach();
    GradMode off(run, false);
    return block(x);
  }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    auto end = std::make_shared<Catch>();
    x.set_node(end);
    {
      GradMode on(run, true);
      mtrain::backward(block(x), dy);
    }
    if (g[0].wanted()) g[0].give(run, std::exchange(end->grad, {}));
  }
};

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x) {
  if (!x.run().grad_enabled) return block(x);
  return apply(Recompute{.block = std::move(block)}, x);
}

}  // namespace mtrain
