// What changes a router's input and selection: jitter, a product in bf16, ranks in backend of
// scores.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "contract/harness.h"
#include "contract/router_reference.h"
#include "contract/test_backends.h"
#include "mtrain/autograd/expert_ops.h"
#include "mtrain/autograd/noise_ops.h"
#include "mtrain/base/rng.h"

namespace mtrain::contract {
namespace {

// A factor as it is defined: bit i of u, from the left, is 1 where number i of the stream is at
// least 1/2.
Values jitter_factors(ExecutionContext& ctx, int64_t count, int64_t first, double eps) {
  Values out;
  for (int64_t i = 0; i < count; ++i) {
    double u = std::ldexp(0.5, -kUniformBits);
    for (int bit = 1; bit <= kUniformBits; ++bit) {
      RngStream stream(ctx.seed(), name_key("jitter") + static_cast<uint64_t>(bit), ctx.step);
      if (stream.uniform(static_cast<uint64_t>(first + i)) >= 0.5f) u += std::ldexp(1, -bit);
    }
    out.push_back(1 - eps + 2 * eps * u);
  }
  return out;
}

TEST_CASE("jitter: values and gradients") {
  Figures figures("jitter");
  for (int64_t rows : kOddSizes)
    for (float eps : {0.01f, 0.5f}) {
      constexpr int64_t kCols = 33, kFirst = 1000;
      Fixture other;  // seeds are alike
      other.context().step = 5;
      Values factors =
          jitter_factors(other.context(), rows * kCols, kFirst * kCols, static_cast<double>(eps));
      Case c{.name = cat("jitter ", eps, " ", rows), .out = {rows, kCols}};
      c.inputs = {{"x", {rows, kCols}, random_values(rows * kCols, "x")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        ctx.step = 5;
        ctx.first_token = kFirst;
        Tensor y = jitter(t[0], eps, name_key("jitter"));
        ctx.step = 6;  // backward must use the forward's factors all the same
        ctx.first_token = 0;
        return y;
      };
      c.forward = [=](const std::vector<Values>& v) { return reference::mul(v[0], factors); };
      c.backward = [=](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{reference::mul(dy, factors)};
      };
      c.remove = [](KernelTable& kernels) { kernels.dropout = nullptr; };
      check(c, figures);
    }
}

TEST_CASE("jitter: uniform, the same however the tokens are split, and none in evaluation") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kRows = 64, kCols = 65;
  constexpr double kEps = 0.25;
  Tensor x = make(ctx, Values(kRows * kCols, 1.0), {kRows, kCols}, DType::f32);
  ctx.first_token = 100;
  const Values whole = values_of(jitter(x, kEps, 77));
  double mean = 0, square = 0;
  for (double v : whole) {
    CHECK(std::fabs(v - 1) < kEps);
    mean += (v - 1) / static_cast<double>(whole.size());
    square += (v - 1) * (v - 1) / static_cast<double>(whole.size());
  }
  CHECK(std::fabs(mean) < 0.01);
  CHECK(square == doctest::Approx(kEps * kEps / 3).epsilon(0.05));
  for (int64_t rows : {1, 5, 40}) {
    ctx.own_tokens = std::make_shared<const std::vector<RowRange>>(
        std::vector<RowRange>{{rows, kRows - rows}, {0, rows}});
    const Values split = values_of(jitter(x, kEps, 77));
    const auto cut = static_cast<ptrdiff_t>(rows * kCols);
    CHECK(std::equal(whole.begin() + cut, whole.end(), split.begin()));
    CHECK(std::equal(whole.begin(), whole.begin() + cut, split.end() - cut));
  }
  ctx.own_tokens = nullptr;
  CHECK(values_of(jitter(x, kEps, 78)) != whole);
  ctx.step = 1;
  CHECK(values_of(jitter(x, kEps, 77)) != whole);
  ctx.training = false;
  CHECK(values_of(jitter(x, kEps, 77)) == Values(kRows * kCols, 1.0));
}

TEST_CASE("add_noise: values and gradients, the same however the tokens are split") {
  Figures figures("add_noise");
  for (int64_t rows : kOddSizes)
    for (float size : {0.01f, 2.0f}) {
      constexpr int64_t kCols = 33, kFirst = 1000;
      Fixture other;
      other.context().step = 5;
      // A factor of jitter with eps = 1 is 1 + n for noise n of size 1.
      Values noise = jitter_factors(other.context(), rows * kCols, kFirst * kCols, 1);
      for (double& v : noise) v = (v - 1) * static_cast<double>(size);
      Case c{.name = cat("add_noise ", size, " ", rows), .out = {rows, kCols}};
      c.inputs = {{"x", {rows, kCols}, random_values(rows * kCols, "x")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        ctx.step = 5;
        ctx.first_token = kFirst;
        return add_noise(t[0], size, name_key("jitter"));
      };
      c.forward = [=](const std::vector<Values>& v) {
        Values y = v[0];
        for (size_t i = 0; i < y.size(); ++i) y[i] += noise[i];
        return y;
      };
      c.backward = [=](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{dy};
      };
      c.remove = [](KernelTable& kernels) { kernels.dropout = nullptr; };
      check(c, figures);
    }
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, Values(6 * 5, 0.0), {6, 5}, DType::f32);
  const Values whole = values_of(add_noise(x, 1, 77));
  ctx.own_tokens = std::make_shared<const std::vector<RowRange>>(std::vector<RowRange>{{4, 2}});
  const Values split =
      values_of(add_noise(make(ctx, Values(2 * 5, 0.0), {2, 5}, DType::f32), 1, 77));
  CHECK(std::equal(split.begin(), split.end(), whole.begin() + 20));
  ctx.training = false;
  CHECK(values_of(add_noise(x, 1, 77)) == Values(30, 0.0));
}

TEST_CASE("router_logits in bf16: those of a linear layer in bf16, with their gradients") {
  constexpr int64_t kTokens = 17, kIn = 35, kExperts = 8;
  struct Leaves {
    std::shared_ptr<Catcher> x = std::make_shared<Catcher>();
    std::shared_ptr<Leaf> w = std::make_shared<Leaf>(), b = std::make_shared<Leaf>();
  };
  const Values xs = random_values(kTokens * kIn, "x"), ws = random_values(kExperts * kIn, "w"),
               bs = round_to(random_values(kExperts, "b"), DType::bf16),
               dys = random_values(kTokens * kExperts, "dy");
  for (const TestBackend& backend : test_backends())
    for (DType dtype : {DType::f32, DType::bf16}) {
      INFO("at ", backend.name, ", ", name(dtype));
      Fixture lab(backend.make(2));
      ExecutionContext& ctx = lab.context();
      auto run = [&](DType given, auto&& op, DType result) {
        Leaves leaf;
        Tensor x = make(ctx, xs, {kTokens, kIn}, given), w = make(ctx, ws, {kExperts, kIn}, given),
               b = make(ctx, bs, {kExperts}, given);
        leaf.w->grad = ctx.empty(w.shape(), DType::f32);
        leaf.b->grad = ctx.empty(b.shape(), DType::f32);
        x.set_node(leaf.x), w.set_node(leaf.w), b.set_node(leaf.b);
        Tensor y = op(x, w, b);
        CHECK(y.dtype() == result);
        Values out = values_of(y);
        backward(y, make(ctx, dys, y.shape(), result));
        return std::vector<Values>{out, values_of(leaf.x->grad), values_of(leaf.w->grad),
                                   values_of(leaf.b->grad)};
      };
      auto got = run(
          dtype,
          [](const Tensor& x, const Tensor& w, const Tensor& b) {
            return router_logits(x, w, b, DType::bf16);
          },
          DType::f32);
      auto want = run(
          DType::bf16,
          [](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b); },
          DType::bf16);
      CHECK(got[0] == want[0]);
      CHECK(round_to(got[1], DType::bf16) == want[1]);
      CHECK(got[2] == want[2]);
      CHECK(got[3] == want[3]);
    }
  Fixture lab;
  Tensor half = make(lab.context(), xs, {kTokens, kIn}, DType::f16),
         w = make(lab.context(), ws, {kExperts, kIn}, DType::f16);
  CHECK_THROWS_WITH_AS(router_logits(half, w, {}, DType::bf16), doctest::Contains("fp16"), Error);
}

Values doubles_of(const Tensor& t) {
  CHECK(t.dtype() == DType::f64);
  Values out(static_cast<size_t>(t.numel()));
  t.context().download(t, out.data());
  return out;
}

double largest_distance(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (double d = std::fabs(a[i] - b[i]); !(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  return worst;
}

TEST_CASE("router_logits in fp64: the product and its gradients in double, rounded once") {
  constexpr int64_t kTokens = 37, kIn = 131, kExperts = 9;
  const Values bs = round_to(random_values(kExperts, "b"), DType::bf16),
               dys = random_values(kTokens * kExperts, "dy");
  for (const TestBackend& backend : test_backends())
    for (DType dtype : kDTypes)
      for (bool prior : {false, true}) {
        INFO("at ", backend.name, ", ", name(dtype), ", prior ", prior);
        Fixture lab(backend.make(2));
        ExecutionContext& ctx = lab.context();
        const Values xs = round_to(random_values(kTokens * kIn, "x"), dtype),
                     ws = round_to(random_values(kExperts * kIn, "w"), dtype);
        auto caught = std::make_shared<Catcher>();
        auto weight = std::make_shared<Leaf>(), bias = std::make_shared<Leaf>();
        Tensor x = make(ctx, xs, {kTokens, kIn}, dtype), w = make(ctx, ws, {kExperts, kIn}, dtype),
               b = make(ctx, bs, {kExperts}, dtype);
        weight->grad = make(ctx, Values(ws.size(), 0.5), w.shape(), DType::f32);
        bias->grad = make(ctx, Values(bs.size(), 0.5), b.shape(), DType::f32);
        weight->has_grad = bias->has_grad = prior;
        x.set_node(caught), w.set_node(weight), b.set_node(bias);
        Tensor y = router_logits(x, w, b, DType::f64);
        const Values exact = reference::linear(xs, ws, bs, kTokens, kIn, kExperts);
        CHECK(largest_distance(doubles_of(y), exact) < 1e-13);
        backward(y, ctx.from_host<double>(dys, y.shape()));
        auto want = reference::linear_backward(dys, xs, ws, kTokens, kIn, kExperts);
        for (size_t i : {1, 2})
          for (double& v : want[i]) v += prior ? 0.5 : 0;
        CHECK(caught->grad.dtype() == dtype);
        check_close(values_of(caught->grad), want[0], dtype, {.sums = 0.01}, "dx");
        check_close(values_of(weight->grad), want[1], DType::f32, {.sums = 0.01}, "dw");
        check_close(values_of(bias->grad), want[2], DType::f32, {.sums = 0.01}, "db");
      }
}

TEST_CASE(
    "route: logits in fp64 that differ only in double select different experts, and their gradient "
    "is in double") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Values z = {0.3, 0.1, 0.3 + 1e-12, 0.3 - 1e-12, -0.2, 0.2};
  for (const RouterRule& rule :
       {RouterRule{.top_k = 2},
        {.top_k = 2, .pre_softmax = true},
        {.score = RouterRule::Score::sigmoid, .top_k = 2},
        {.score = RouterRule::Score::sqrt_softplus, .top_k = 2, .scaling = 2.5}}) {
    Tensor logits = ctx.from_host<double>(z, {1, 6});
    auto caught = std::make_shared<Catcher>();
    logits.set_node(caught);
    Routed routed = route(logits, rule, {}, nullptr);
    CHECK(routed.experts == std::vector<int32_t>{2, 0});
    CHECK(route(make(ctx, z, {1, 6}, DType::f32), rule, {}, nullptr).experts ==
          std::vector<int32_t>{0, 2});
    check_close(values_of(routed.weights_TK), router_weights(z, 6, rule), DType::f32, {},
                "weights");
    const Values dy = {0.75, -0.5};
    backward(routed.weights_TK, make(ctx, dy, {1, 2}, DType::f32));
    CHECK(largest_distance(doubles_of(caught->grad), router_weights_backward(z, 6, rule, dy)) <
          1e-9);
  }
  Tensor half = make(ctx, z, {1, 6}, DType::bf16);
  CHECK_THROWS_WITH_AS(route(half, {.top_k = 2}, {}, nullptr), doctest::Contains("bf16"), Error);
}

TEST_CASE("router_logits in fp64: a backend without the kernel is named") {
  Fixture lab;
  lab.kernels().double_gemm = nullptr;
  Tensor x = make(lab.context(), Values(6, 1), {2, 3}, DType::f32),
         w = make(lab.context(), Values(12, 1), {4, 3}, DType::f32);
  CHECK_THROWS_WITH_AS(router_logits(x, w, {}, DType::f64), doctest::Contains("double_gemm"),
                       Error);
}

TEST_CASE("route: selection scores select the experts, and the weights are those of the scores") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor logits = make(ctx, {0.1, 0.4, 0.3, 0.2, 0, 0, 0, 0, 1, 2, 3, 4}, {3, 4}, DType::f32);
  const std::vector<double> selection = {0.9, 0.1, 0.2, 0.3, 1, 2, 3, 4, 0, 0, 0, 0};
  const std::vector<int32_t> padding = {0, 0, 1};
  RouterRule rule{.score = RouterRule::Score::sigmoid, .top_k = 2};
  Routed routed = route(logits, rule, {.selection_scores = selection, .padding = padding}, nullptr);
  CHECK(routed.experts == std::vector<int32_t>{0, 3, 3, 2, -1, -1});
  const double a = 1 / (1 + std::exp(-0.1)), b = 1 / (1 + std::exp(-0.2));
  check_close(values_of(routed.weights_TK), {a / (a + b), b / (a + b), 0.5, 0.5, 0, 0}, DType::f32,
              {}, "weights");
  const std::vector<float> bias = {0, 0, 0, 0};
  CHECK_THROWS_WITH_AS(route(logits, rule, {.bias = bias, .selection_scores = selection}, nullptr),
                       doctest::Contains("selection scores"), Error);
  CHECK_THROWS_WITH_AS(
      route(logits, rule, {.selection_scores = std::span(selection).first(4)}, nullptr),
      doctest::Contains("selection scores"), Error);
}

}  // namespace
}  // namespace mtrain::contract
