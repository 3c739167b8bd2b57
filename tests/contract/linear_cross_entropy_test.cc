// The fused end of a language model against its composition of linear and cross_entropy, which have
// their own definitions.
#include <doctest/doctest.h>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

struct HeadProblem {
  int64_t rows, width, vocab, valid;
  bool want_x = true, want_w = true, parameter = true;
  double held = 0;  // what the parameter's gradient holds from before; 0: nothing
  float weight = 0.25f;
  bool bias = false;
  LogitMap map = {};
};

struct HeadResult {
  Values loss, dx, dw, db;
};

HeadResult solve(const HeadProblem& p, DType dtype, bool fused, ExecutionContext& ctx) {
  Tensor x = make(ctx, random_values(p.rows * p.width, "x"), {p.rows, p.width}, dtype);
  Tensor w = make(ctx, random_values(p.vocab * p.width, "w", 0.5), {p.vocab, p.width}, dtype);
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < p.rows; ++t)
    targets.push_back(t % 5 == 3 ? -1 : static_cast<int32_t>(t * 37 % p.valid));
  auto x_end = std::make_shared<Catcher>();
  auto leaf = std::make_shared<Leaf>();
  auto w_end =
      p.parameter ? std::static_pointer_cast<GradTarget>(leaf) : std::make_shared<Catcher>();
  if (p.parameter) {
    leaf->grad = make(ctx, Values(static_cast<size_t>(p.vocab * p.width), p.held),
                      {p.vocab, p.width}, DType::f32);
    leaf->has_grad = p.held != 0;
  }
  if (p.want_x) x.set_node(x_end);
  if (p.want_w) w.set_node(w_end);
  auto bias = std::make_shared<Leaf>();
  Tensor b = p.bias ? make(ctx, random_values(p.vocab, "b"), {p.vocab}, dtype) : Tensor();
  bias->grad = make(ctx, Values(static_cast<size_t>(p.vocab), p.held), {p.vocab}, DType::f32);
  bias->has_grad = p.held != 0;
  if (p.bias) b.set_node(bias);
  Tensor ids = make_ids(ctx, targets);
  Tensor loss =
      fused ? linear_cross_entropy(x, w, ids, p.valid, p.weight, {}, nullptr, nullptr, b, p.map)
            : cross_entropy(linear(x, w, b), ids, p.valid, {}, p.map);
  HeadResult out{values_of(loss), {}, {}, {}};
  backward(loss, make(ctx, Values(static_cast<size_t>(p.rows), p.weight), {p.rows}, DType::f32));
  if (p.want_x) out.dx = values_of(x_end->grad);
  if (p.want_w) out.dw = values_of(w_end->grad);
  if (p.bias) out.db = values_of(bias->grad);
  return out;
}

void compare(const HeadProblem& p, DType dtype) {
  INFO(name(dtype), ", ", p.rows, " x ", p.width, ", ", p.vocab, " (", p.valid, ")");
  Fixture one(1), two(2);
  HeadResult fused = solve(p, dtype, true, one.context()),
             plain = solve(p, dtype, false, one.context());
  HeadResult again = solve(p, dtype, true, two.context());
  CHECK(fused.loss == plain.loss);
  CHECK(fused.dx == plain.dx);
  check_close(fused.dw, plain.dw, p.parameter ? DType::f32 : dtype, {.sums = 64}, "dw");
  check_close(fused.db, plain.db, DType::f32, {.sums = 64}, "db");
  CHECK(again.loss == fused.loss);
  CHECK(again.dx == fused.dx);
  CHECK(again.dw == fused.dw);
  CHECK(again.db == fused.db);
}

TEST_CASE("linear_cross_entropy is linear and cross_entropy") {
  for (DType dtype : kDTypes) {
    for (int64_t rows : {1, 17, 65})
      for (int64_t vocab : {3, 129}) compare({rows, 33, vocab, vocab - vocab / 7}, dtype);
    compare({17, 8, 65, 60, true, true, true, 2.5}, dtype);  // added to what the parameter has
    compare({17, 8, 65, 60, false, true}, dtype);            // only the parameter
    compare({17, 8, 65, 60, true, false}, dtype);            // only the input: a frozen head
    compare({17, 8, 65, 60, true, true, false}, dtype);      // a matrix that is itself a result
  }
}

TEST_CASE("linear_cross_entropy in several pieces is the whole") {
  compare({530, 5, 65536, 65500}, DType::f32);  // logits of 139 MB
  compare({530, 5, 65536, 65500, true, true, true, 1.5}, DType::f32);
}

TEST_CASE("linear_cross_entropy with a bias is linear with it and cross_entropy") {
  for (DType dtype : kDTypes) {
    compare({.rows = 17, .width = 33, .vocab = 129, .valid = 120, .bias = true}, dtype);
    compare({.rows = 17, .width = 8, .vocab = 65, .valid = 60, .held = 2.5, .bias = true},
            dtype);  // added to what is there
    compare({.rows = 17, .width = 8, .vocab = 65, .valid = 60, .want_w = false, .bias = true},
            dtype);  // of a frozen matrix
    compare({.rows = 9,
             .width = 8,
             .vocab = 65,
             .valid = 60,
             .want_x = false,
             .want_w = false,
             .bias = true},
            dtype);
  }
  compare({.rows = 530, .width = 5, .vocab = 65536, .valid = 65500, .held = 1.5, .bias = true},
          DType::f32);  // several pieces
}

TEST_CASE("linear_cross_entropy of mapped logits is linear and the loss of the map") {
  for (const LogitMap map : {LogitMap{0.125f, 0}, LogitMap{1, 4}, LogitMap{0.5f, 30}})
    for (DType dtype : kDTypes) {
      compare({.rows = 17, .width = 33, .vocab = 129, .valid = 120, .map = map}, dtype);
      compare({.rows = 9, .width = 8, .vocab = 65, .valid = 60, .bias = true, .map = map}, dtype);
    }
  compare({.rows = 530, .width = 5, .vocab = 65536, .valid = 65500, .map = {1, 30}},
          DType::f32);  // several pieces
}

TEST_CASE("linear_cross_entropy: the gradient of its bias is what the losses' differences say") {
  constexpr int64_t kRows = 5, kWidth = 3, kVocab = 7;
  const Values bias = random_values(kVocab, "b");
  auto total = [&](const Values& values) {
    Fixture lab;
    ExecutionContext& ctx = lab.context();
    auto leaf = std::make_shared<Leaf>();
    leaf->grad = ctx.zeros({kVocab}, DType::f32);
    Tensor x = make(ctx, random_values(kRows * kWidth, "x"), {kRows, kWidth}, DType::f32);
    Tensor w = make(ctx, random_values(kVocab * kWidth, "w"), {kVocab, kWidth}, DType::f32);
    Tensor b = make(ctx, values, {kVocab}, DType::f32);
    b.set_node(leaf);
    Tensor loss = linear_cross_entropy(x, w, make_ids(ctx, {0, 6, -1, 2, 2}), kVocab, 1, {},
                                       nullptr, nullptr, b);
    backward(loss, make(ctx, Values(kRows, 1), {kRows}, DType::f32));
    double sum = 0;
    for (double one : values_of(loss)) sum += one;
    return std::pair(sum, values_of(leaf->grad));
  };
  const Values gradient = total(bias).second;
  for (size_t i = 0; i < bias.size(); ++i) {
    constexpr double kStep = 1e-2;
    Values up = bias, down = bias;
    up[i] += kStep, down[i] -= kStep;
    CHECK(std::abs((total(up).first - total(down).first) / (2 * kStep) - gradient[i]) < 2e-4);
  }
}

TEST_CASE("linear_cross_entropy never holds the logits of all tokens") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const int64_t rows = 1030, vocab = 65536;
  size_t before = ctx.memory().peak();
  solve({rows, 4, vocab, vocab}, DType::f32, true, ctx);
  CHECK(ctx.memory().peak() - before < size_t{140} << 20);
}

TEST_CASE("linear_cross_entropy: losses whose backward has not come are counted") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  auto leaf = std::make_shared<Leaf>();
  leaf->grad = ctx.zeros({4, 3}, DType::f32);
  Tensor x = make(ctx, random_values(6, "x"), {2, 3}, DType::f32),
         w = make(ctx, random_values(12, "w"), {4, 3}, DType::f32);
  w.set_node(leaf);
  Tensor loss = linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0.5f);
  CHECK(ctx.open_losses == 1);
  linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0);  // only looked at
  CHECK(ctx.open_losses == 1);
  backward(loss, make(ctx, {0.5, 0.5}, {2}, DType::f32));
  CHECK(ctx.open_losses == 0);
}

TEST_CASE(
    "linear_cross_entropy: losses that are weighted in another way are refused, not trained on") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, random_values(6, "x"), {2, 3}, DType::f32),
         w = make(ctx, random_values(12, "w"), {4, 3}, DType::f32);
  x.set_node(std::make_shared<Catcher>());
  Tensor loss = linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0.5f);
  CHECK_THROWS_AS(backward(loss, make(ctx, {0.5, 0.25}, {2}, DType::f32)), Error);
}

TEST_CASE("linear_cross_entropy without a known weight, or without a tape, gives the same losses") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, random_values(6, "x"), {2, 3}, DType::f32),
         w = make(ctx, random_values(12, "w"), {4, 3}, DType::f32);
  auto end = std::make_shared<Catcher>();
  x.set_node(end);
  Values known = values_of(linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0.5f));
  Tensor loss = linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0);
  CHECK(values_of(loss) == known);
  backward(loss, make(ctx, {0.5, 0.25}, {2}, DType::f32));
  CHECK(end->has_grad);
  GradMode off(ctx, false);
  CHECK(values_of(linear_cross_entropy(x, w, make_ids(ctx, {0, 1}), 4, 0)) == known);
}

}  // namespace
}  // namespace mtrain::contract
