#include <doctest/doctest.h>

#include <array>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

Case linear_case(int64_t tokens, int64_t in, int64_t out, bool bias, bool residual = false) {
  Case c{.name = cat("linear ", tokens, " x ", in, " -> ", out, bias ? " + bias" : "",
                     residual ? " + residual" : ""),
         .out = {tokens, out}};
  c.inputs = {{"x", {tokens, in}, random_values(tokens * in, "x")},
              {"w", {out, in}, random_values(out * in, "w"), true}};
  if (bias) c.inputs.push_back({"b", {out}, random_values(out, "b"), true});
  if (residual) c.inputs.push_back({"r", {tokens, out}, random_values(tokens * out, "r")});
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return linear(t[0], t[1], bias ? t[2] : Tensor(), residual ? t.back() : Tensor());
  };
  c.forward = [=](const std::vector<Values>& v) {
    Values y = reference::linear(v[0], v[1], bias ? v[2] : Values(), tokens, in, out);
    if (residual)
      for (size_t i = 0; i < y.size(); ++i) y[i] += v.back()[i];
    return y;
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    auto grads = reference::linear_backward(dy, v[0], v[1], tokens, in, out);
    if (!bias) grads.pop_back();
    if (residual) grads.push_back(dy);
    return grads;
  };
  return c;
}

TEST_CASE("linear: values and gradients") {
  Figures figures("linear");
  int turn = 0;
  for (int64_t tokens : kOddSizes)
    for (int64_t width : kOddSizes)
      check(linear_case(tokens, width, kOddSizes[turn % 6], turn % 2 == 0), figures), turn += 5;
  for (auto [tokens, in, out] : {std::array<int64_t, 3>{1, 129, 1},
                                 {129, 1, 129},
                                 {2, 64, 192},
                                 {64, 128, 256},
                                 {7, 300, 11}})
    for (bool bias : {false, true})
      for (bool residual : {false, true})
        check(linear_case(tokens, in, out, bias, residual), figures);
}

TEST_CASE("linear: mismatched shapes and dtypes are refused with both") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = ctx.zeros({3, 4}, DType::f32), w = ctx.zeros({5, 6}, DType::f32),
         half = ctx.zeros({5, 4}, DType::bf16);
  CHECK_THROWS_WITH_AS(linear(x, w), doctest::Contains("[3, 4]"), Error);
  CHECK_THROWS_WITH_AS(linear(x, half), doctest::Contains("bf16"), Error);
  CHECK_THROWS_AS(linear(x, ctx.zeros({5, 4}, DType::f32), ctx.zeros({4}, DType::f32)), Error);
  CHECK_THROWS_WITH_AS(linear(x, ctx.zeros({5, 4}, DType::f32), {}, ctx.zeros({3, 4}, DType::f32)),
                       doctest::Contains("[3, 5]"), Error);
  CHECK_THROWS_AS(linear(x.slice(1, 0, 2), ctx.zeros({5, 2}, DType::f32)), Error);
}

}  // namespace
}  // namespace mtrain::contract
