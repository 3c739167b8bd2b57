// The ops of multi-token prediction: columns side by side, rows below each other and apart again,
// and a loss that carries another one.
#include <doctest/doctest.h>

#include <algorithm>

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

TEST_CASE("join_rows puts rows below each other, take_rows takes them apart") {
  Figures figures("join_rows and take_rows");
  constexpr int64_t kCols = 7;
  for (int64_t n : kOddSizes) {
    const int64_t m = n / 2 + 1;
    const auto upper = static_cast<ptrdiff_t>(n * kCols), lower = static_cast<ptrdiff_t>(m * kCols);
    Case c{.name = cat("join_rows ", n, " + ", m), .out = {n + m, kCols}};
    c.inputs = {{"a", {n, kCols}, random_values(upper, "a")},
                {"b", {m, kCols}, random_values(lower, "b")}};
    c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return join_rows(t[0], t[1]); };
    c.forward = [](const std::vector<Values>& v) {
      Values y = v[0];
      y.insert(y.end(), v[1].begin(), v[1].end());
      return y;
    };
    c.backward = [=](const std::vector<Values>&, const Values& dy) {
      return std::vector<Values>{{dy.begin(), dy.begin() + upper}, {dy.begin() + upper, dy.end()}};
    };
    check(c, figures);
    // The rows of the lower part, and those that are around them, which read nothing.
    Case take{.name = cat("take_rows ", m, " of ", n + m), .out = {m, kCols}};
    take.inputs = {{"x", {n + m, kCols}, random_values(upper + lower, "x")}};
    take.op = [=](ExecutionContext&, std::vector<Tensor>& t) { return take_rows(t[0], n / 2, m); };
    const auto first = static_cast<ptrdiff_t>(n / 2 * kCols);
    take.forward = [=](const std::vector<Values>& v) {
      return Values(v[0].begin() + first, v[0].begin() + first + lower);
    };
    take.backward = [=](const std::vector<Values>& v, const Values& dy) {
      Values dx(v[0].size());
      std::copy(dy.begin(), dy.end(), dx.begin() + first);
      return std::vector<Values>{dx};
    };
    check(take, figures);
  }
  Fixture lab;
  Tensor x = make(lab.context(), Values(6, 1), {3, 2}, DType::f32);
  CHECK_THROWS_AS(take_rows(x, 2, 2), Error);
  CHECK_THROWS_AS(join_rows(x, make(lab.context(), Values(3, 1), {1, 3}, DType::f32)), Error);
}

TEST_CASE("take_rows: the gradients of several parts of one tensor add up") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  auto caught = std::make_shared<Catcher>();
  Tensor x = make(ctx, {1, 2, 3, 4, 5, 6}, {3, 2}, DType::f32);
  x.set_node(caught);
  Tensor y = join_rows(take_rows(x, 1, 2), take_rows(x, 0, 2));
  CHECK(values_of(y) == Values{3, 4, 5, 6, 1, 2, 3, 4});
  backward(y, make(ctx, {1, 1, 2, 2, 3, 3, 4, 4}, {4, 2}, DType::f32));
  CHECK(values_of(caught->grad) == Values{3, 3, 5, 5, 2, 2});
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
