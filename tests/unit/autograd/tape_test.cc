// The engine: where gradients add up, who owns them, in which order backward runs, and what it lets
// go.
#include "mtrain/autograd/tape.h"

#include <doctest/doctest.h>

#include <vector>

#include "contract/harness.h"

namespace mtrain {
namespace {

using namespace contract;

const Shape kShape = {2, 3};
const Values kX = {1, -2, 3, 0.5, 4, -1}, kDy = {1, 2, 3, 4, 5, 6};

Values times(const Values& v, double factor) {
  Values out = v;
  for (double& x : out) x *= factor;
  return out;
}

struct Caught {  // a tensor whose gradient is caught
  Caught(ExecutionContext& ctx, const Values& values, DType dtype = DType::f32,
         const Shape& shape = kShape)
      : probe(std::make_shared<Catcher>()), tensor(make(ctx, values, shape, dtype)) {
    tensor.set_node(probe);
  }
  Values grad() const { return values_of(probe->grad); }
  std::shared_ptr<Catcher> probe;
  Tensor tensor;
};

std::shared_ptr<Leaf> leaf_of(ExecutionContext& ctx, const Shape& shape) {
  auto leaf = std::make_shared<Leaf>();
  leaf->grad = ctx.empty(shape, DType::f32);
  return leaf;
}

TEST_CASE("tape: a tensor used twice gets the sum of its gradients") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    Caught x(ctx, kX, dtype);
    Tensor dy = make(ctx, kDy, kShape, dtype);
    backward(add(x.tensor, x.tensor), dy);
    CHECK(x.grad() == times(kDy, 2));
    CHECK(values_of(dy) == kDy);
  }
}

TEST_CASE("tape: a chain of residual adds leaves every branch its own gradient") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    Caught x(ctx, kX, dtype), a(ctx, kX, dtype), b(ctx, kX, dtype);
    Tensor dy = make(ctx, kDy, kShape, dtype);
    Tensor h = add(x.tensor, a.tensor);
    Tensor y = add(h, b.tensor);
    Tensor z = add(y, h);  // h is used twice
    backward(z, dy);
    CHECK(b.grad() == kDy);
    CHECK(a.grad() == times(kDy, 2));
    CHECK(x.grad() == times(kDy, 2));
    CHECK(values_of(dy) == kDy);
  }
}

TEST_CASE(
    "tape: an op that writes its gradient in place does not reach the branch that shares it") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const HeadLayout layout{1, 1, 2};
  const Shape shape = {2, 6};
  Values x = random_values(12, "x"), dy = round_to(random_values(12, "dy"), DType::f32);
  RopeTable table{make(ctx, {1, 0, -1}, {3, 1}, DType::f32),
                  make(ctx, {0, 1, 0}, {3, 1}, DType::f32)};
  Caught turned(ctx, x, DType::f32, shape), straight(ctx, x, DType::f32, shape);
  // Both inputs of `add` are handed the same dy; rope's backward wants to turn it in place.
  Tensor h = rope(Tensor(turned.tensor), layout, table, make_ids(ctx, {1, 2}));
  backward(add(h, straight.tensor), make(ctx, dy, shape, DType::f32));
  CHECK(straight.grad() == dy);
  Values want = dy;  // token 0 turned back by 90 degrees, token 1 by 180; values as they are
  want[0] = dy[1], want[1] = -dy[0], want[2] = dy[3], want[3] = -dy[2];
  for (size_t i : {6, 7, 8, 9}) want[i] = -dy[i];
  CHECK(turned.grad() == want);
}

TEST_CASE("tape: slot overwrites what is not of this step and adds to what is") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  auto leaf = leaf_of(ctx, kShape);
  ctx.copy(leaf->grad, make(ctx, times(kX, 100), kShape, DType::f32));  // of the step before
  Tensor w = make(ctx, kX, kShape, DType::f32);
  w.set_node(leaf);
  for (int use = 1; use <= 3; ++use) {  // three micro-batches
    backward(add(w, make(ctx, kX, kShape, DType::f32)), make(ctx, kDy, kShape, DType::f32));
    CHECK(values_of(leaf->grad) == times(kDy, use));
  }
  leaf->has_grad = false;
  backward(add(w, w), make(ctx, kDy, kShape, DType::f32));
  CHECK(values_of(leaf->grad) == times(kDy, 2));
}

TEST_CASE("tape: a parameter's gradient stays in the memory that its owner gave") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor buffer = ctx.zeros({12}, DType::f32);
  auto leaf = std::make_shared<Leaf>();
  leaf->grad = buffer.slice(0, 6, 12).view(kShape);
  Tensor w = make(ctx, kX, kShape, DType::bf16);
  w.set_node(leaf);
  backward(add(w, w), make(ctx, kDy, kShape, DType::bf16));
  Values want(6, 0.0);
  for (double v : times(kDy, 2)) want.push_back(v);
  CHECK(values_of(buffer) == want);
}

TEST_CASE(
    "tape: give hands over without copying, and copies as soon as somebody would be disturbed") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Catcher target;
  InputGrad input(&target);
  Tensor first = make(ctx, kDy, kShape, DType::f32), second = make(ctx, kX, kShape, DType::f32);
  input.give(ctx, first);
  CHECK(target.grad.raw() == first.raw());
  input.give(ctx, second);
  CHECK(target.grad.raw() != first.raw());
  CHECK(values_of(first) == kDy);
  CHECK(values_of(second) == kX);
  CHECK(values_of(target.grad) == reference::add(kDy, kX));
  void* own = target.grad.raw();
  input.give(ctx, second);  // now it is alone: no further copy
  CHECK(target.grad.raw() == own);
  InputGrad::Slot slot = input.slot(ctx, kShape, DType::f32);
  CHECK(slot.accumulate);
  CHECK(slot.out.raw() == own);
}

TEST_CASE("tape: slot and accumulator copy a shared gradient before it is written") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (bool zeroing : {false, true}) {
    Catcher target;
    InputGrad input(&target);
    Tensor shared = make(ctx, kDy, kShape, DType::f32);
    input.give(ctx, shared);
    Tensor out = zeroing ? input.accumulator(ctx, kShape, DType::f32)
                         : input.slot(ctx, kShape, DType::f32).out;
    CHECK(out.raw() != shared.raw());
    CHECK(values_of(out) == kDy);
  }
  Catcher fresh;
  CHECK(values_of(InputGrad(&fresh).accumulator(ctx, kShape, DType::f32)) == Values(6, 0.0));
  CHECK(fresh.has_grad);
}

TEST_CASE("tape: backward runs each op once, after all uses of its result") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  // y = Σ of 2^k paths through a ladder of adds: only the right order gives 2^k.
  Caught x(ctx, kX);
  Tensor y = x.tensor;
  for (int i = 0; i < 20; ++i) y = add(y, y);
  backward(y, make(ctx, kDy, kShape, DType::f32));
  CHECK(x.grad() == times(kDy, 1 << 20));
}

TEST_CASE("tape: results that lead nowhere are not touched") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Caught x(ctx, kX), unused(ctx, kX);
  Tensor side = add(unused.tensor, x.tensor);
  backward(add(x.tensor, make(ctx, kX, kShape, DType::f32)), make(ctx, kDy, kShape, DType::f32));
  CHECK_FALSE(unused.probe->has_grad);
  CHECK(x.grad() == kDy);
}

TEST_CASE("tape: what an op kept is let go as soon as its backward has run") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Caught x(ctx, kX);
  size_t before = ctx.memory().in_use();
  Tensor y = gelu(gelu(x.tensor, GeluKind::erf), GeluKind::erf);
  backward(y, make(ctx, kDy, kShape, DType::f32));
  x.probe->grad = {};
  CHECK(ctx.memory().in_use() == before + 6 * sizeof(float));  // y itself is still held
}

TEST_CASE("tape: a second backward through the same ops is refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor dy = make(ctx, kDy, kShape, DType::f32);
  {
    Caught x(ctx, kX);
    Tensor y = add(x.tensor, x.tensor);
    backward(y, dy);
    CHECK_THROWS_WITH_AS(backward(y, dy), doctest::Contains("ran already"), Error);
  }
  Caught x(ctx, kX);
  Tensor shared = add(x.tensor, x.tensor), a = gelu(shared, GeluKind::erf),
         b = gelu(shared, GeluKind::tanh);
  backward(a, dy);
  CHECK_THROWS_WITH_AS(backward(b, dy), doctest::Contains("ran already"), Error);
}

TEST_CASE(
    "tape: backward wants a gradient of the result's shape and a result that leads somewhere") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Caught x(ctx, kX);
  Tensor y = add(x.tensor, x.tensor);
  CHECK_THROWS_AS(backward(y, make(ctx, kDy, {3, 2}, DType::f32)), Error);
  CHECK_THROWS_AS(backward(make(ctx, kX, kShape, DType::f32), make(ctx, kDy, kShape, DType::f32)),
                  Error);
  Tensor w = make(ctx, kX, kShape, DType::f32);
  w.set_node(std::make_shared<Leaf>());  // nobody allocated its gradient
  CHECK_THROWS_WITH_AS(backward(add(w, w), make(ctx, kDy, kShape, DType::f32)),
                       doctest::Contains("main gradient"), Error);
}

TEST_CASE("tape: a view of a result has a gradient, a slice of one is refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Caught x(ctx, random_values(8, "x"), DType::f32, {2, 4}),
      w(ctx, random_values(12, "w"), DType::f32, {3, 4});
  auto bias = leaf_of(ctx, {3});
  Tensor b = make(ctx, {0, 0, 0}, {3}, DType::f32);
  b.set_node(bias);
  Tensor y = linear(x.tensor, w.tensor, b);
  Tensor other = make(ctx, kX, {3, 2}, DType::f32);
  backward(add(y.view({3, 2}), other), make(ctx, kDy, {3, 2}, DType::f32));
  CHECK(values_of(bias->grad) == Values{5, 7, 9});  // columns of [[1,2,3],[4,5,6]]

  Caught z(ctx, kX);
  Tensor sum = add(z.tensor, z.tensor);
  Tensor part = add(sum.slice(0, 0, 1), make(ctx, {1, 1, 1}, {1, 3}, DType::f32));
  CHECK_THROWS_AS(backward(part, make(ctx, {1, 1, 1}, {1, 3}, DType::f32)), Error);
}

TEST_CASE("tape: a norm weight that is itself a result gets its gradient in its own dtype") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    Caught w(ctx, {1, 2, 3}, dtype, {3});
    Tensor twice = add(w.tensor.view({1, 3}), w.tensor.view({1, 3})).view({3});
    Tensor x = make(ctx, kX, kShape, dtype);
    backward(rms_norm(x, twice, 1e-5f), make(ctx, kDy, kShape, dtype));
    Values want = reference::rms_norm_backward(kDy, kX, {2, 4, 6}, 2, 3, 1e-5)[1];
    CHECK(w.probe->grad.dtype() == dtype);
    check_close(w.grad(), times(want, 2), dtype, {.inner = 1}, name(dtype));
  }
}

TEST_CASE("tape: no tape is kept while gradients are off or where nothing wants one") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Caught x(ctx, kX);
  Tensor plain = make(ctx, kX, kShape, DType::f32);
  CHECK(add(plain, plain).node() == nullptr);
  {
    GradMode off(ctx, false);
    CHECK(add(x.tensor, x.tensor).node() == nullptr);
    {
      GradMode on(ctx, true);
      CHECK(add(x.tensor, plain).node() != nullptr);
    }
    CHECK_FALSE(ctx.grad_enabled);
  }
  CHECK(ctx.grad_enabled);
}

TEST_CASE(
    "tape: gradients of parameters that are put off come to the same bits, and only when their "
    "time comes") {
  for (DType dtype : kDTypes)
    for (bool recomputed : {false, true}) {
      Fixture lab;
      ExecutionContext& ctx = lab.context();
      const Shape square = {3, 3};
      Values w_values = random_values(9, "w"), b_values = random_values(3, "b"),
             dy = random_values(6, "dy");
      struct Made {
        Values x, w, b, table;
        bool operator==(const Made&) const = default;
      };
      // Two micro-batches; the second one's backward comes before the first one's weights.
      auto train = [&](bool apart) {
        auto w_leaf = leaf_of(ctx, square), b_leaf = leaf_of(ctx, {3}),
             table_leaf = leaf_of(ctx, {4, 3});
        Caught x(ctx, kX, dtype);
        DeferredGradients later[2];
        for (auto& put_off : later) {
          Tensor w = make(ctx, w_values, square, dtype), b = make(ctx, b_values, {3}, dtype),
                 table = make(ctx, random_values(12, "table"), {4, 3}, dtype);
          w.set_node(w_leaf), b.set_node(b_leaf), table.set_node(table_leaf);
          Tensor h = add(x.tensor, embedding(table, make_ids(ctx, {1, 3})));
          auto block = [w, b](const Tensor& in) {
            return linear(gelu(linear(in, w, b), GeluKind::erf), w, b, in);
          };
          Tensor y = recomputed ? recompute(block, h) : block(h);
          backward(y, make(ctx, dy, kShape, dtype), apart ? &put_off : nullptr);
          CHECK(put_off.empty() == !apart);
        }
        CHECK(w_leaf->has_grad == !apart);
        CHECK(b_leaf->has_grad == !apart);
        CHECK(table_leaf->has_grad == !apart);
        for (auto& put_off : later) put_off.run();
        for (auto& put_off : later) CHECK(put_off.empty());
        return Made{x.grad(), values_of(w_leaf->grad), values_of(b_leaf->grad),
                    values_of(table_leaf->grad)};
      };
      INFO(std::string(name(dtype)), recomputed ? ", recomputed" : "");
      Made plain = train(false), apart = train(true);
      CHECK(plain == apart);
      CHECK(plain.w != Values(9, 0.0));
    }
}

struct Watching final : LeafWatch {
  void before_value(int64_t leaf) override { events += cat("v", leaf, " "); }
  void before_gradient(int64_t leaf) override { events += cat("g", leaf, " "); }
  std::string take() { return std::exchange(events, {}); }
  std::string events;
};

TEST_CASE("tape: who watches a leaf hears of its values and its gradients") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Watching watch;
  std::vector<Tensor> weights;
  std::vector<std::shared_ptr<Leaf>> leaves;
  for (int64_t i = 0; i < 2; ++i) {
    leaves.push_back(leaf_of(ctx, {3, 3}));
    leaves.back()->watch = &watch, leaves.back()->number = i;
    weights.push_back(make(ctx, Values(9, 0.5), {3, 3}, DType::f32));
    weights.back().set_node(leaves.back());
  }
  Tensor dy = make(ctx, kDy, kShape, DType::f32);
  auto net = [&](const Tensor& x) {
    return linear(linear(linear(x, weights[0]), weights[1]), weights[0]);
  };
  Tensor x = make(ctx, kX, kShape, DType::f32);
  {
    Tensor y = net(x), dropped = net(x);
    backward(y, dy);
    CHECK(watch.take() == "v0 g0 v1 g1 v0 g0 ");
  }
  DeferredGradients later;
  backward(net(x), dy, &later);
  CHECK(watch.take() == "v0 v1 v0 ");
  later.run();
  CHECK(watch.take() == "g0 g1 g0 ");
  backward(recompute(net, x), dy);
  CHECK(watch.take() == "v0 g0 v1 g1 v0 g0 ");
  {
    GradMode off(ctx, false);
    net(x);
  }
  for (auto& leaf : leaves) leaf->watch = nullptr;
}

}  // namespace
}  // namespace mtrain
