// One op whose backward replays its forward with the tape on.
#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

// The start of the inner tape: receives the gradient of the block's input.
class Catch final : public GradTarget {};

// The keys of random draws.
struct DrawKeys {
  uint64_t step = 0;
  int64_t first_token = 0;
  std::shared_ptr<const std::vector<RowRange>> own_tokens;

  static DrawKeys of(const Run& run) { return {run.step, run.first_token, run.own_tokens}; }
  void put(Run& run) const {
    run.step = step, run.first_token = first_token, run.own_tokens = own_tokens;
  }
};

// Restores the state of the forward pass, since another micro-batch may have run in between.
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
  std::function<Tensor(const Tensor&, const Tensor&)> block;
  Tensor a, b;
  DrawKeys keys;

  Tensor forward(Run& run, const Tensor& a_in, const Tensor& b_in) {
    a = a_in.detach();
    if (b_in.defined()) b = b_in.detach();
    keys = DrawKeys::of(run);
    GradMode off(run, false);
    return block(a, b);
  }
  void backward(Run& run, const Tensor& dy, Grads<2>& g) {
    auto end_a = std::make_shared<Catch>(), end_b = std::make_shared<Catch>();
    a.set_node(end_a);
    if (b.defined()) b.set_node(end_b);
    {
      GradMode on(run, true);
      AsOf then(run, keys);
      mtrain::backward(block(a, b), dy, g[0].later());
    }
    if (end_a->has_grad && g[0].wanted()) g[0].give(run, std::exchange(end_a->grad, {}));
    if (end_b->has_grad && g[1].wanted()) g[1].give(run, std::exchange(end_b->grad, {}));
  }
};

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x) {
  return recompute([block = std::move(block)](const Tensor& a, const Tensor&) { return block(a); },
                   x, {});
}

Tensor recompute(std::function<Tensor(const Tensor&, const Tensor&)> block, const Tensor& a,
                 const Tensor& b) {
  if (!a.run().grad_enabled) return block(a, b);
  Tensor own = a;
  // The parameters of the block need gradients even if nothing before the block does.
  if (!own.node()) own.set_node(std::make_shared<Catch>());
  return apply(Recompute{.block = std::move(block)}, own, b);
}

}  // namespace mtrain
