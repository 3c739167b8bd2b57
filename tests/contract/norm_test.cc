#include <doctest/doctest.h>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

constexpr float kEps = 1e-5f;

Case rms_case(int64_t rows, int64_t cols, double scale) {
  Case c{.name = cat("rms_norm ", rows, " x ", cols, " scale ", scale), .out = {rows, cols}};
  c.inputs = {{"x", {rows, cols}, random_values(rows * cols, "x", scale)},
              {"w", {cols}, random_values(cols, "w"), true}};
  c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return rms_norm(t[0], t[1], kEps); };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::rms_norm(v[0], v[1], rows, cols, kEps);
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    return reference::rms_norm_backward(dy, v[0], v[1], rows, cols, kEps);
  };
  // Of a single column all but eps cancels in dx: what is left is the rounding of dy*w*rstd, which
  // is large where x is small.
  if (cols == 1) c.bound.sums *= 4;
  c.remove = [](KernelTable& kernels) { kernels.rms_norm = nullptr; };
  return c;
}

Case layer_case(int64_t rows, int64_t cols, bool bias, double mean) {
  Case c{.name = cat("layer_norm ", rows, " x ", cols, bias ? " + bias" : "", " mean ", mean),
         .out = {rows, cols}};
  Values x = random_values(rows * cols, "x");
  for (double& v : x) v += mean;
  c.inputs = {{"x", {rows, cols}, x}, {"w", {cols}, random_values(cols, "w"), true}};
  if (bias) c.inputs.push_back({"b", {cols}, random_values(cols, "b"), true});
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return layer_norm(t[0], t[1], bias ? t[2] : Tensor(), kEps);
  };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::layer_norm(v[0], v[1], bias ? v[2] : Values(), rows, cols, kEps);
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    auto grads = reference::layer_norm_backward(dy, v[0], v[1], rows, cols, kEps);
    if (!bias) grads.pop_back();
    return grads;
  };
  // Subtracting the mean leaves its rounding: as large as the mean itself, in units of the
  // deviation.
  c.bound.sums = 16 + 8 * mean;
  c.remove = [](KernelTable& kernels) { kernels.layer_norm = nullptr; };
  return c;
}

TEST_CASE("rms_norm: values and gradients") {
  Figures figures("rms_norm");
  for (int64_t rows : kOddSizes)
    for (int64_t cols : kOddSizes) check(rms_case(rows, cols, 1), figures);
  check(rms_case(5, 33, 30), figures);
}

TEST_CASE("layer_norm: values and gradients") {
  Figures figures("layer_norm");
  for (int64_t rows : kOddSizes)
    for (int64_t cols : {3, 17, 33, 65, 129})
      check(layer_case(rows, cols, (rows + cols) % 3 != 0, 0), figures);
  check(layer_case(9, 65, true, 20), figures);
}

TEST_CASE("layer_norm: a width of one gives the bias and no gradient of x") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, {3, -5}, {2, 1}, DType::f32), w = make(ctx, {2}, {1}, DType::f32),
         b = make(ctx, {7}, {1}, DType::f32);
  auto probe = std::make_shared<Catcher>();
  x.set_node(probe);
  Tensor y = layer_norm(x, w, b, kEps);
  CHECK(values_of(y) == Values{7, 7});
  backward(y, make(ctx, {1, 2}, {2, 1}, DType::f32));
  CHECK(values_of(probe->grad) == Values{0, 0});
}

TEST_CASE("norms: rows of zeros stay finite") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    Tensor w = make(ctx, Values(17, 1.0), {17}, dtype);
    CHECK(values_of(rms_norm(ctx.zeros({2, 17}, dtype), w, kEps)) == Values(34, 0.0));
    CHECK(values_of(layer_norm(ctx.zeros({2, 17}, dtype), w, {}, kEps)) == Values(34, 0.0));
  }
}

}  // namespace
}  // namespace mtrain::contract
