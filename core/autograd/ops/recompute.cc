// One op whose backward replays its forward with the tape on.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

// The end of the inner tape: catches the gradient of the block's input.
class Catch final : public GradTarget {};

// What random draws are keyed by.
struct DrawKeys {
  uint64_t step = 0;
  int64_t first_token = 0;
  std::shared_ptr<const std::vector<RowRange>> own_tokens;

  static DrawKeys of(const Run& run) { return {run.step, run.first_token, run.own_tokens}; }
  void put(Run& run) const { run.step = step, run.first_token = first_token, run.own_tokens = own_tokens; }
};

// Another micro-batch may have been in flight since the forward pass.
class AsOf {
 public:
  AsOf(Run& run, const DrawKeys& then) : run_(run), now_(DrawKeys::of(run)) { then.put(run); }
  ~AsOf() { now_.put(run_); }
  AsOf(const AsOf&) = delete;
  AsOf& operator=(const AsOf&) = delete;

 private:
  Run& run_;
  DrawKeys now_;
};

struct Recompute {
  std::function<Tensor(const Tensor&)> block;
  Tensor x;
  DrawKeys keys;

  Tensor forward(Run& run, const Tensor& x_in) {
    x = x_in.detach();
    keys = DrawKeys::of(run);
    GradMode off(run, false);
    return block(x);
  }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    auto end = std::make_shared<Catch>();
    x.set_node(end);
    {
      GradMode on(run, true);
      AsOf then(run, keys);
      mtrain::backward(block(x), dy);
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
