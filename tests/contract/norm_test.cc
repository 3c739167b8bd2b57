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

Values plus(Values w, double offset) {
  for (double& v : w) v += offset;
  return w;
}

/// A norm of rows whose weight is w + offset, or the offset alone. `layer`: LayerNorm with a bias.
Case offset_case(bool layer, int64_t rows, int64_t cols, bool weight, double offset) {
  Case c{.name = cat(layer ? "layer_norm " : "rms_norm ", rows, " x ", cols, " offset ", offset,
                     weight ? "" : " without weight"),
         .out = {rows, cols}};
  c.inputs = {{"x", {rows, cols}, random_values(rows * cols, "x")}};
  if (weight) c.inputs.push_back({"w", {cols}, random_values(cols, "w", 0.3), true});
  if (layer) c.inputs.push_back({"b", {cols}, random_values(cols, "b"), true});
  auto factor = [=](const std::vector<Values>& v) {
    return weight ? plus(v[1], offset) : Values(static_cast<size_t>(cols), offset);
  };
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    Tensor w = weight ? t[1] : Tensor();
    auto shift = static_cast<float>(offset);
    return layer ? layer_norm(t[0], w, t.back(), kEps, shift) : rms_norm(t[0], w, kEps, shift);
  };
  c.forward = [=](const std::vector<Values>& v) {
    return layer ? reference::layer_norm(v[0], factor(v), v.back(), rows, cols, kEps)
                 : reference::rms_norm(v[0], factor(v), rows, cols, kEps);
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    auto grads = layer ? reference::layer_norm_backward(dy, v[0], factor(v), rows, cols, kEps)
                       : reference::rms_norm_backward(dy, v[0], factor(v), rows, cols, kEps);
    if (!weight) grads.erase(grads.begin() + 1);
    return grads;
  };
  c.bound.sums = 32;
  c.remove = [](KernelTable& kernels) { kernels.rms_norm = nullptr, kernels.layer_norm = nullptr; };
  return c;
}

TEST_CASE("norms with an offset of their weight, and without weight: values and gradients") {
  Figures figures("norms with offset");
  for (bool layer : {false, true})
    for (int64_t rows : {1, 17, 65})
      for (int64_t cols : {3, 33, 129}) {
        check(offset_case(layer, rows, cols, true, 1), figures);
        check(offset_case(layer, rows, cols, true, -0.5), figures);
        check(offset_case(layer, rows, cols, false, 1), figures);
      }
}

// Gemma's order of roundings: (1 + w) in float, one rounding at the end. 1 + w rounded to bf16
// first would lose all of a small w.
TEST_CASE("norms: a small weight on an offset of one is not rounded away") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, {1, 2}, {1, 2}, DType::bf16),
         w = make(ctx, {0, 121.0 / 32768}, {2}, DType::bf16);
  // 2 / sqrt(2.5) is 1.26491, nearest to 162 / 128; times 1 + w it is 1.26958, nearest to 163 /
  // 128.
  CHECK(values_of(rms_norm(x, w, 0, 1)) == Values{162.0 / 256, 163.0 / 128});
  CHECK_THROWS_AS(rms_norm(x, {}, 0), Error);
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
