// Recomputed blocks: the same bits as kept ones, wherever they stand and whatever ran in between.
#include <doctest/doctest.h>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

constexpr int64_t kTokens = 17, kWidth = 33, kInner = 65;

// A pre-norm block with dropout, held by three parameters.
struct Block {
  std::vector<std::shared_ptr<Leaf>> leaves;
  std::vector<Tensor> weights;

  Block(ExecutionContext& ctx, DType dtype) {
    for (const Shape& shape : {Shape{kWidth}, Shape{kInner, kWidth}, Shape{kWidth, kInner}}) {
      leaves.push_back(std::make_shared<Leaf>());
      leaves.back()->grad = ctx.zeros(shape, DType::f32);
      weights.push_back(
          make(ctx, random_values(shape.numel(), cat("w", leaves.size()), 0.3), shape, dtype));
    }
  }
  Tensor use(size_t i) const {
    Tensor t = weights[i];
    if (t.context().grad_enabled) t.set_node(leaves[i]);
    return t;
  }
  Tensor operator()(const Tensor& x, uint64_t key) const {
    Tensor h = gelu(linear(rms_norm(x, use(0), 1e-5f), use(1)), GeluKind::tanh);
    return add(x, dropout(linear(h, use(2)), 0.25f, key));
  }
};

enum class Recomputation { kept, recomputed, nested };

Tensor run_block(const Block& block, const Tensor& x, uint64_t key, Recomputation way) {
  auto plain = [&block, key](const Tensor& in) { return block(in, key); };
  if (way == Recomputation::kept) return plain(x);
  if (way == Recomputation::recomputed) return recompute(plain, x);
  return recompute([plain](const Tensor& in) { return recompute(plain, in); }, x);
}

struct BlockResult {
  Values y, dx;
  std::vector<Values> dw;
  bool operator==(const BlockResult&) const = default;
};

// Two micro-batches through two uses of the block each: F0 F1 B0 B1, as a pipeline stage runs them.
BlockResult train(DType dtype, Recomputation way, bool input_wants_gradient) {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Block block(ctx, dtype);
  BlockResult result;
  std::vector<Tensor> outputs;
  std::vector<std::shared_ptr<Catcher>> probes;
  for (int micro = 0; micro < 2; ++micro) {
    ctx.step = 3;
    ctx.first_token = micro * kTokens;
    Tensor x =
        make(ctx, random_values(kTokens * kWidth, cat("x", micro)), {kTokens, kWidth}, dtype);
    probes.push_back(std::make_shared<Catcher>());
    if (input_wants_gradient) x.set_node(probes.back());
    outputs.push_back(run_block(block, run_block(block, x, 1, way), 2, way));
    for (double v : values_of(outputs.back())) result.y.push_back(v);
  }
  for (int micro = 0; micro < 2; ++micro) {
    Values dy = random_values(kTokens * kWidth, cat("dy", micro));
    backward(std::exchange(outputs[static_cast<size_t>(micro)], {}),
             make(ctx, dy, {kTokens, kWidth}, dtype));
    if (input_wants_gradient)
      for (double v : values_of(probes[static_cast<size_t>(micro)]->grad)) result.dx.push_back(v);
  }
  CHECK(ctx.first_token == kTokens);
  CHECK(ctx.step == 3);
  for (const auto& leaf : block.leaves) result.dw.push_back(values_of(leaf->grad));
  return result;
}

TEST_CASE(
    "recompute: values and gradients are those of kept activations to the bit, dropout included") {
  for (DType dtype : kDTypes)
    for (bool input_wants_gradient : {true, false}) {
      INFO(name(dtype), input_wants_gradient ? "" : ", parameters only");
      BlockResult kept = train(dtype, Recomputation::kept, input_wants_gradient);
      CHECK(train(dtype, Recomputation::recomputed, input_wants_gradient) == kept);
      CHECK(train(dtype, Recomputation::nested, input_wants_gradient) == kept);
      for (const Values& dw : kept.dw) CHECK(dw != Values(dw.size(), 0.0));
    }
}

TEST_CASE("recompute: keeps the block's input and nothing else") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Block block(ctx, DType::f32);
  auto kept = [&](Recomputation way) {
    Tensor x = make(ctx, random_values(kTokens * kWidth, "x"), {kTokens, kWidth}, DType::f32);
    size_t before = ctx.memory().in_use();
    Tensor y = run_block(block, x, 1, way);
    return ctx.memory().in_use() - before;
  };
  size_t stream = kTokens * kWidth * sizeof(float);
  CHECK(kept(Recomputation::recomputed) == stream);
  CHECK(kept(Recomputation::kept) > 3 * stream);
}

TEST_CASE("recompute: without a tape the block just runs") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Block block(ctx, DType::f32);
  GradMode off(ctx, false);
  Tensor x = make(ctx, random_values(kTokens * kWidth, "x"), {kTokens, kWidth}, DType::f32);
  Tensor y = run_block(block, x, 1, Recomputation::recomputed);
  CHECK(y.node() == nullptr);
  CHECK(values_of(y) == values_of(run_block(block, x, 1, Recomputation::kept)));
}

TEST_CASE("recompute: a block that fails in backward leaves the run as it was") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  int calls = 0;
  auto block = [&](const Tensor& x) {
    if (++calls > 1) throw Error(ErrorClass::bug, "second time");
    return gelu(x, GeluKind::erf);
  };
  Tensor x = make(ctx, {1, 2}, {1, 2}, DType::f32);
  ctx.first_token = 4;
  Tensor y = recompute(block, x);
  ctx.first_token = 9;
  {
    GradMode off(ctx, false);
    CHECK_THROWS_AS(backward(y, make(ctx, {1, 1}, {1, 2}, DType::f32)), Error);
    CHECK_FALSE(ctx.grad_enabled);
  }
  CHECK(ctx.first_token == 9);
}

TEST_CASE("recompute: a block that ignores its input gives it no gradient") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Block block(ctx, DType::f32);
  Tensor x = make(ctx, random_values(kWidth, "x"), {1, kWidth}, DType::f32);
  auto probe = std::make_shared<Catcher>();
  x.set_node(probe);
  Tensor y = recompute([&](const Tensor& in) { return linear(in.detach(), block.use(1)); }, x);
  backward(y, make(ctx, Values(kInner, 1.0), {1, kInner}, DType::f32));
  CHECK_FALSE(probe->has_grad);
  CHECK(values_of(block.leaves[1]->grad) != Values(kInner * kWidth, 0.0));
}

}  // namespace
}  // namespace mtrain::contract
