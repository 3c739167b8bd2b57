// The ops of multi-token prediction: columns side by side, and a loss that carries another one.
#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/autograd/multi_token_ops.h"

namespace mtrain::contract {
namespace {

Case join_case(int64_t tokens, int64_t a, int64_t b) {
  Case c{.name = cat("join_columns ", tokens, " x (", a, " + ", b, ")"), .out = {tokens, a + b}};
  c.inputs = {{"a", {tokens, a}, random_values(tokens * a, "a")},
              {"b", {tokens, b}, random_values(tokens * b, "b")}};
  c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return join_columns(t[0], t[1]); };
  const auto rows = static_cast<size_t>(tokens), left = static_cast<size_t>(a),
             right = static_cast<size_t>(b);
  c.forward = [=](const std::vector<Values>& v) {
    Values y;
    for (size_t t = 0; t < rows; ++t) {
      for (size_t i = 0; i < left; ++i) y.push_back(v[0][t * left + i]);
      for (size_t i = 0; i < right; ++i) y.push_back(v[1][t * right + i]);
    }
    return y;
  };
  c.backward = [=](const std::vector<Values>&, const Values& dy) {
    std::vector<Values> grads(2);
    for (size_t t = 0; t < rows; ++t)
      for (size_t i = 0; i < left + right; ++i)
        grads[i < left ? 0 : 1].push_back(dy[t * (left + right) + i]);
    return grads;
  };
  return c;
}

}  // namespace

TEST_CASE("join_columns puts rows side by side, and splits their gradient") {
  Figures figures("join_columns");
  for (int64_t n : kOddSizes) check(join_case(n, 5, 3), figures);
  check(join_case(4, 1, 64), figures);
  check(join_case(3, 128, 128), figures);
}

TEST_CASE("attach_loss keeps the loss, and adds the other one's gradient times its factor") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Values own = random_values(9, "own"), other = random_values(9, "other"),
               dy = random_values(9, "dy");
  auto first = std::make_shared<Catcher>(), second = std::make_shared<Catcher>();
  Tensor a = make(ctx, own, {9}, DType::f32), b = make(ctx, other, {9}, DType::f32);
  const Values before = values_of(a);
  a.set_node(first), b.set_node(second);
  Tensor y = attach_loss(a, b, 0.25f);
  CHECK(values_of(y) == before);
  backward(y, make(ctx, dy, {9}, DType::f32));
  const Values to_own = values_of(first->grad), to_other = values_of(second->grad);
  for (size_t i = 0; i < 9; ++i) {
    CHECK(to_own[i] == static_cast<double>(static_cast<float>(dy[i])));
    CHECK(to_other[i] == static_cast<double>(static_cast<float>(dy[i]) * 0.25f));
  }
  CHECK_THROWS_AS(attach_loss(a, make(ctx, other, {3, 3}, DType::f32), 1), Error);
}

}  // namespace mtrain::contract
