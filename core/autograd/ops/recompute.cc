// One op whose backward replays its forward with the tape on.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

// The end of the inner tape: catches the gradient of the block's input.
class Catch final : public GradTarget {};

// Random draws are keyed by step and token; another micro-batch may have been in flight since the forward pass.
class AsOf {
 public:
  AsOf(Run& run, uint64_t step, int64_t first_token)
      : run_(run), step_(std::exchange(run.step, step)), first_token_(std::exchange(run.first_token, first_token)) {}
  ~AsOf() { run_.step = step_, run_.first_token = first_token_; }
  AsOf(const AsOf&) = delete;
  AsOf& operator=(const AsOf&) = delete;

 private:
  Run& run_;
  uint64_t step_;
  int64_t first_token_;
};

struct Recompute {
  std::function<Tensor(const Tensor&)> block;
  Tensor x;
  uint64_t step = 0;
  int64_t first_token = 0;

  Tensor forward(Run& run, const Tensor& x_in) {
    x = x_in.detach();
    step = run.step;
    first_token = run.first_token;
    GradMode off(run, false);
    return block(x);
  }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    auto end = std::make_shared<Catch>();
    x.set_node(end);
    {
      GradMode on(run, true);
      AsOf then(run, step, first_token);
      mtrain::backward(block(x), dy, g[0].later());
    }
    if (end->has_grad) g[0].give(run, std::exchange(end->grad, {}));
  }
};

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x) {
  if (!x.run().grad_enabled) return block(x);
  Tensor own = x;
  // Parameters of the block want gradients even where nothing before it does.
  if (!own.node()) own.set_node(std::make_shared<Catch>());
  return apply(Recompute{.block = std::move(block)}, own);
}

}  // namespace mtrain
