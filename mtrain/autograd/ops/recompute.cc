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
  KeepInput keep;  // of the first input
  std::function<Tensor()> stored = {};
  Tensor a = {}, b = {};
  DrawKeys keys = {};

  Tensor forward(Run& run, const Tensor& a_in, const Tensor& b_in) {
    if (b_in.defined()) b = b_in.detach();
    keys = DrawKeys::of(run);
    GradMode off(run, false);
    if (!keep) return block(a = a_in.detach(), b);
    stored = keep(a_in.detach());
    return block(a_in.detach(), b);
  }
  void backward(Run& run, const Tensor& dy, Grads<2>& g) {
    if (stored) a = std::exchange(stored, {})();
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

// The parameters of the block need gradients even if nothing before the block does.
Tensor start_of_gradients(const Tensor& x) {
  Tensor own = x;
  if (!own.node()) own.set_node(std::make_shared<Catch>());
  return own;
}

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x) {
  return recompute([block = std::move(block)](const Tensor& a, const Tensor&) { return block(a); },
                   x, Tensor());
}

Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x,
                 const KeepInput& keep) {
  if (!x.run().grad_enabled) return block(x);
  auto of_two = [block = std::move(block)](const Tensor& a, const Tensor&) { return block(a); };
  return apply(Recompute{.block = of_two, .keep = keep}, start_of_gradients(x), Tensor());
}

Tensor recompute(std::function<Tensor(const Tensor&, const Tensor&)> block, const Tensor& a,
                 const Tensor& b) {
  if (!a.run().grad_enabled) return block(a, b);
  return apply(Recompute{.block = std::move(block), .keep = {}}, start_of_gradients(a), b);
}

}  // namespace mtrain
