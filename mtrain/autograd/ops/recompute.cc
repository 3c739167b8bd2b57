// One op whose backward replays its forward with the tape on.
#include "mtrain/autograd/latent_ops.h"
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

  static DrawKeys of(const ExecutionContext& ctx) {
    return {ctx.step, ctx.first_token, ctx.own_tokens};
  }
  void put(ExecutionContext& ctx) const {
    ctx.step = step, ctx.first_token = first_token, ctx.own_tokens = own_tokens;
  }
};

// Restores the state of the forward pass, since another micro-batch may have run in between.
class AsOf {
 public:
  AsOf(ExecutionContext& ctx, const DrawKeys& then) : ctx_(ctx), now_(DrawKeys::of(ctx)) {
    then.put(ctx);
  }
  ~AsOf() { now_.put(ctx_); }
  AsOf(const AsOf&) = delete;
  AsOf& operator=(const AsOf&) = delete;

 private:
  ExecutionContext& ctx_;
  DrawKeys now_;
};

struct Recompute {
  std::function<Tensor(const Tensor&, const Tensor&)> block;
  KeepInput keep;  // of the first input
  std::function<Tensor()> stored = {};
  Tensor a = {}, b = {};
  DrawKeys keys = {};

  Tensor forward(ExecutionContext& ctx, const Tensor& a_in, const Tensor& b_in) {
    if (b_in.defined()) b = b_in.detach();
    keys = DrawKeys::of(ctx);
    GradMode off(ctx, false);
    if (!keep) return block(a = a_in.detach(), b);
    stored = keep(a_in.detach());
    return block(a_in.detach(), b);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    if (stored) a = std::exchange(stored, {})();
    auto end_a = std::make_shared<Catch>(), end_b = std::make_shared<Catch>();
    a.set_node(end_a);
    if (b.defined()) b.set_node(end_b);
    {
      GradMode on(ctx, true);
      AsOf then(ctx, keys);
      mtrain::backward(block(a, b), dy, g[0].later());
    }
    if (end_a->has_grad && g[0].wanted()) g[0].give(ctx, std::exchange(end_a->grad, {}));
    if (end_b->has_grad && g[1].wanted()) g[1].give(ctx, std::exchange(end_b->grad, {}));
  }
};

// The same for a result that may be discarded: the op that restores it records the tape on which
// backward then runs.
struct Replay {
  using Inputs = std::array<Tensor, 3>;
  std::function<Tensor(const Inputs&)> block;
  Inputs inputs = {};
  DrawKeys keys = {};
  std::array<std::shared_ptr<Catch>, 3> ends = {};
  std::shared_ptr<NodeBase> recompute_discardable = {};  // of the result of the second run

  Tensor forward(ExecutionContext& ctx, const Tensor& a, const Tensor& b, const Tensor& c) {
    const Tensor* in[] = {&a, &b, &c};
    for (size_t i = 0; i < inputs.size(); ++i)
      if (in[i]->defined()) inputs[i] = in[i]->detach();
    keys = DrawKeys::of(ctx);
    GradMode off(ctx, false);
    return block(inputs);
  }
  Tensor recompute(ExecutionContext& ctx) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined()) inputs[i].set_node(ends[i] = std::make_shared<Catch>());
    GradMode on(ctx, true);
    AsOf then(ctx, keys);
    Tensor y = block(inputs);
    inputs = {};
    recompute_discardable = y.node();
    return y.detach();
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (!recompute_discardable) recompute(ctx);
    mtrain::backward(std::move(recompute_discardable), dy, g[0].later());
    for (size_t i = 0; i < ends.size(); ++i)
      if (ends[i] && ends[i]->has_grad && g[i].wanted())
        g[i].give(ctx, std::exchange(ends[i]->grad, {}));
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
  if (!x.context().grad_enabled) return block(x);
  auto of_two = [block = std::move(block)](const Tensor& a, const Tensor&) { return block(a); };
  return apply(Recompute{.block = of_two, .keep = keep}, start_of_gradients(x), Tensor());
}

Tensor recompute(std::function<Tensor(const Tensor&, const Tensor&)> block, const Tensor& a,
                 const Tensor& b) {
  if (!a.context().grad_enabled) return block(a, b);
  return apply(Recompute{.block = std::move(block), .keep = {}}, start_of_gradients(a), b);
}

Tensor recompute_discardable(std::function<Tensor(const std::array<Tensor, 3>&)> block,
                             const Tensor& a, const Tensor& b, const Tensor& c) {
  if (!a.context().grad_enabled) return block({a, b, c});
  return apply(Replay{.block = std::move(block)}, start_of_gradients(a), b, c);
}

}  // namespace mtrain
