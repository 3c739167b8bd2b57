// add, mul, scale, silu_mul, gelu, embedding, spread_linear, scale_columns, times_columns and
// dropout.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "contract/harness.h"
#include "mtrain/autograd/adapter_ops.h"
#include "mtrain/base/rng.h"

namespace mtrain::contract {
namespace {

Case binary_case(const std::string& name, int64_t rows, int64_t cols, double scale) {
  Case c{.name = cat(name, " ", rows, " x ", cols), .out = {rows, cols}};
  c.inputs = {{"first", {rows, cols}, random_values(rows * cols, "first", scale)},
              {"second", {rows, cols}, random_values(rows * cols, "second")}};
  return c;
}

TEST_CASE("add: values and gradients") {
  Figures figures("add");
  for (int64_t rows : kOddSizes)
    for (int64_t cols : {1, 33, 129}) {
      Case c = binary_case("add", rows, cols, 1);
      c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return add(t[0], t[1]); };
      c.forward = [](const std::vector<Values>& v) { return reference::add(v[0], v[1]); };
      c.backward = [](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{dy, dy};
      };
      check(c, figures);
    }
}

TEST_CASE("mul: values and gradients") {
  Figures figures("mul");
  for (int64_t rows : kOddSizes)
    for (int64_t cols : {1, 33, 129}) {
      Case c = binary_case("mul", rows, cols, 1);
      c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return mul(t[0], t[1]); };
      c.forward = [](const std::vector<Values>& v) { return reference::mul(v[0], v[1]); };
      c.backward = [](const std::vector<Values>& v, const Values& dy) {
        return std::vector<Values>{reference::mul(dy, v[1]), reference::mul(dy, v[0])};
      };
      check(c, figures);
    }
}

TEST_CASE("mul: a square has two summands in its gradient") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  auto probe = std::make_shared<Catcher>();
  Tensor x = make(ctx, {1, -2, 3}, {1, 3}, DType::f32);
  x.set_node(probe);
  Tensor y = mul(x, x);
  CHECK(values_of(y) == Values{1, 4, 9});
  backward(y, make(ctx, {1, 1, 0.5}, {1, 3}, DType::f32));
  CHECK(values_of(probe->grad) == Values{2, -4, 3});
}

TEST_CASE("scale: values and gradients") {
  Figures figures("scale");
  for (int64_t rows : kOddSizes)
    for (float factor : {0.375f, -8.0f, 0.0f}) {
      Case c{.name = cat("scale ", factor, " ", rows), .out = {rows, 33}};
      c.inputs = {{"x", {rows, 33}, random_values(rows * 33, "x")}};
      auto scaled = [=](Values v) {
        for (double& x : v) x *= static_cast<double>(factor);
        return v;
      };
      c.op = [=](ExecutionContext&, std::vector<Tensor>& t) { return scale(t[0], factor); };
      c.forward = [=](const std::vector<Values>& v) { return scaled(v[0]); };
      c.backward = [=](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{scaled(dy)};
      };
      check(c, figures);
    }
}

TEST_CASE("silu_mul: values and gradients") {
  Figures figures("silu_mul");
  for (int64_t rows : kOddSizes)
    for (auto [cols, scale] : {std::array<int64_t, 2>{1, 1}, {17, 4}, {129, 1}}) {
      Case c = binary_case("silu_mul", rows, cols, static_cast<double>(scale));
      c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return silu_mul(t[0], t[1]); };
      c.forward = [](const std::vector<Values>& v) { return reference::silu_mul(v[0], v[1]); };
      c.backward = [](const std::vector<Values>& v, const Values& dy) {
        return reference::silu_mul_backward(dy, v[0], v[1]);
      };
      c.remove = [](KernelTable& kernels) { kernels.silu_mul = nullptr; };
      check(c, figures);
    }
}

TEST_CASE("gelu: values and gradients, exact and approximate") {
  Figures figures("gelu");
  for (bool tanh_form : {false, true})
    for (int64_t rows : kOddSizes)
      for (auto [cols, scale] : {std::array<int64_t, 2>{1, 1}, {17, 3}, {129, 1}}) {
        Case c{.name = cat("gelu ", tanh_form ? "tanh " : "erf ", rows, " x ", cols),
               .out = {rows, cols}};
        c.inputs = {
            {"x", {rows, cols}, random_values(rows * cols, "x", static_cast<double>(scale))}};
        c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
          return gelu(t[0], tanh_form ? GeluKind::tanh : GeluKind::erf);
        };
        c.forward = [=](const std::vector<Values>& v) { return reference::gelu(v[0], tanh_form); };
        c.backward = [=](const std::vector<Values>& v, const Values& dy) {
          return std::vector<Values>{reference::gelu_backward(dy, v[0], tanh_form)};
        };
        c.remove = [](KernelTable& kernels) { kernels.gelu = nullptr; };
        c.bound.sums =
            32;  // 1 - sigmoid loses its low bits before it is multiplied by the inner slope
        check(c, figures);
      }
}

TEST_CASE("gelu_mul: values and gradients, exact and approximate") {
  Figures figures("gelu_mul");
  for (bool tanh_form : {false, true})
    for (int64_t rows : kOddSizes)
      for (auto [cols, scale] : {std::array<int64_t, 2>{1, 1}, {17, 3}, {129, 1}}) {
        Case c = binary_case(cat("gelu_mul ", tanh_form ? "tanh" : "erf"), rows, cols,
                             static_cast<double>(scale));
        c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
          return gelu_mul(t[0], t[1], tanh_form ? GeluKind::tanh : GeluKind::erf);
        };
        c.forward = [=](const std::vector<Values>& v) {
          return reference::mul(reference::gelu(v[0], tanh_form), v[1]);
        };
        c.backward = [=](const std::vector<Values>& v, const Values& dy) {
          return std::vector<Values>{
              reference::gelu_backward(reference::mul(dy, v[1]), v[0], tanh_form),
              reference::mul(dy, reference::gelu(v[0], tanh_form))};
        };
        c.remove = [](KernelTable& kernels) { kernels.gelu_mul = nullptr; };
        c.bound.sums = 64;  // as gelu, times values of up
        check(c, figures);
      }
}

TEST_CASE("relu: values and gradients, plain and squared") {
  Figures figures("relu");
  for (bool squared : {false, true})
    for (int64_t rows : kOddSizes)
      for (int64_t cols : {1, 17, 129}) {
        Case c{.name = cat("relu ", squared ? "squared " : "", rows, " x ", cols),
               .out = {rows, cols}};
        Values x = random_values(rows * cols, "x");
        for (double& v : x) v += v < 0 ? -0.05 : 0.05;  // finite differences do not cross 0
        c.inputs = {{"x", {rows, cols}, x}};
        c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
          return relu(t[0], squared ? ReluKind::squared : ReluKind::plain);
        };
        c.forward = [=](const std::vector<Values>& v) { return reference::relu(v[0], squared); };
        c.backward = [=](const std::vector<Values>& v, const Values& dy) {
          return std::vector<Values>{reference::relu_backward(dy, v[0], squared)};
        };
        c.remove = [](KernelTable& kernels) { kernels.relu = nullptr; };
        check(c, figures);
      }
}

TEST_CASE("add_scaled: values and gradients") {
  Figures figures("add_scaled");
  for (int64_t rows : kOddSizes)
    for (float factor : {0.22f, -3.0f, 1.0f}) {
      Case c = binary_case(cat("add_scaled ", factor), rows, 33, 1);
      auto scaled = [=](Values v) {
        for (double& x : v) x *= static_cast<double>(factor);
        return v;
      };
      c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
        return add_scaled(t[0], t[1], factor);
      };
      c.forward = [=](const std::vector<Values>& v) { return reference::add(v[0], scaled(v[1])); };
      c.backward = [=](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{dy, scaled(dy)};
      };
      check(c, figures);
    }
}

TEST_CASE("a backend that has the forward kernel alone runs the composition") {
  Fixture lab, whole;
  lab.kernels().silu_mul_backward = nullptr;
  auto gradient = [](ExecutionContext& ctx) {
    auto probe = std::make_shared<Catcher>();
    Tensor gate = make(ctx, {-2, 0.5, 3}, {1, 3}, DType::f32);
    gate.set_node(probe);
    Tensor y = silu_mul(gate, make(ctx, {1, 2, 3}, {1, 3}, DType::f32));
    backward(y, make(ctx, {1, 1, 1}, {1, 3}, DType::f32));
    return values_of(probe->grad);
  };
  check_close(gradient(lab.context()), gradient(whole.context()), DType::f32, {},
              "gradient of gate");
}

TEST_CASE("a backend that lacks a kernel of the composition too is named with that kernel") {
  Fixture lab;
  lab.kernels().gelu = nullptr;
  lab.kernels().unary = nullptr;
  Tensor x = make(lab.context(), {1, 2}, {1, 2}, DType::f32);
  std::string said;
  try {
    gelu(x, GeluKind::erf);
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said.find("has no kernel 'unary'") != std::string::npos);
}

TEST_CASE("activations: far from zero they are the identity or nothing, never NaN") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Values far = {-1e4, -300, -100, -90, -50, 50, 90, 100, 300, 1e4}, ones(far.size(), 1.0);
  const Shape shape = {1, static_cast<int64_t>(far.size())};
  for (DType dtype : kDTypes) {
    Values positive = round_to(far, dtype), step = ones;
    for (size_t i = 0; i < far.size(); ++i)
      if (far[i] < 0) positive[i] = step[i] = 0;
    for (int which = 0; which < 3; ++which) {
      INFO(name(dtype), " ", which);
      auto probe = std::make_shared<Catcher>();
      Tensor x = make(ctx, far, shape, dtype);
      x.set_node(probe);
      Tensor y = which == 0   ? silu_mul(x, make(ctx, ones, shape, dtype))
                 : which == 1 ? gelu(x, GeluKind::erf)
                              : gelu(x, GeluKind::tanh);
      check_close(values_of(y), positive, dtype, {}, "value");
      backward(y, make(ctx, ones, shape, dtype));
      check_close(values_of(probe->grad), step, dtype, {}, "gradient");
    }
  }
}

TEST_CASE("embedding: rows of the table, gradients of repeated ids add up") {
  Figures figures("embedding");
  for (int64_t tokens : kOddSizes)
    for (auto [rows, cols] : {std::array<int64_t, 2>{1, 3}, {7, 17}, {130, 65}, {300, 1}}) {
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < tokens; ++t)
        ids.push_back(static_cast<int32_t>((t * t * 31 + t / 2) % rows));
      Case c{.name = cat("embedding ", tokens, " of ", rows, " x ", cols), .out = {tokens, cols}};
      c.inputs = {{"table", {rows, cols}, random_values(rows * cols, "table"), true}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        return embedding(t[0], make_ids(ctx, ids));
      };
      c.forward = [=](const std::vector<Values>& v) {
        return reference::embedding(v[0], ids, cols);
      };
      c.backward = [=, rows = rows, cols = cols](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{reference::embedding_backward(dy, ids, rows, cols)};
      };
      c.bound.sums = 32;  // many tokens of one id
      check(c, figures);
    }
}

TEST_CASE("scale_columns: values and gradients") {
  Figures figures("scale_columns");
  for (bool constants : {false, true})
    for (int64_t rows : {1, 7, 600})
      for (int64_t cols : {1, 33, 257}) {
        Case c{.name = cat("scale_columns ", rows, " x ", cols, constants ? " with constants" : ""),
               .out = {rows, cols}};
        c.inputs = {{"x", {rows, cols}, random_values(rows * cols, "x")},
                    {"v", {cols}, random_values(cols, "v"), true}};
        std::vector<float> factor, offset;
        for (int64_t i = 0; i < cols; ++i) {
          factor.push_back(constants ? 0.5f + static_cast<float>(i % 5) : 1);
          offset.push_back(constants ? 1 - static_cast<float>(i % 3) : 0);
        }
        c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
          if (!constants) return scale_columns(t[0], t[1]);
          return scale_columns(t[0], t[1],
                               {.factor = ctx.from_host<float>(factor, {cols}),
                                .offset = ctx.from_host<float>(offset, {cols})});
        };
        c.forward = [=](const std::vector<Values>& v) {
          Values y = v[0];
          for (size_t i = 0; i < y.size(); ++i) {
            const size_t n = i % factor.size();
            y[i] *= v[1][n] * factor[n] + offset[n];
          }
          return y;
        };
        c.backward = [=](const std::vector<Values>& v, const Values& dy) {
          std::vector<Values> d = {dy, Values(factor.size(), 0)};
          for (size_t i = 0; i < dy.size(); ++i) {
            const size_t n = i % factor.size();
            d[0][i] *= v[1][n] * factor[n] + offset[n];
            d[1][n] += dy[i] * v[0][i] * factor[n];
          }
          return d;
        };
        c.bound.sums = 32;
        check(c, figures);
      }
}

TEST_CASE("times_columns: constant factors of the columns") {
  Figures figures("times_columns");
  for (int64_t rows : {1, 600})
    for (int64_t cols : {1, 33, 257}) {
      std::vector<float> factors;
      for (int64_t i = 0; i < cols; ++i) factors.push_back(0.5f + static_cast<float>(i % 5));
      const auto times = [=](Values x) {
        for (size_t i = 0; i < x.size(); ++i) x[i] *= factors[i % factors.size()];
        return x;
      };
      Case c{.name = cat("times_columns ", rows, " x ", cols), .out = {rows, cols}};
      c.inputs = {{"x", {rows, cols}, random_values(rows * cols, "x")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        return times_columns(t[0], ctx.from_host<float>(factors, {cols}));
      };
      c.forward = [=](const std::vector<Values>& v) { return times(v[0]); };
      c.backward = [=](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{times(dy)};
      };
      check(c, figures);
    }
}

TEST_CASE("spread_linear: a product with rows of a table in blocks of columns") {
  Figures figures("spread_linear");
  for (int64_t tokens : {1, 33})
    for (auto [rows, blocks, cols] : {std::array<int64_t, 3>{5, 1, 4}, {33, 2, 3}, {130, 3, 16}}) {
      // Row n is in block n % blocks; rows that leave 6 divided by 7 are in none.
      std::vector<int32_t> ids;
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t m = 0; m < blocks; ++m)
          ids.push_back(n % blocks == m && n % 7 != 6 ? static_cast<int32_t>(n) : -1);
      const int64_t width = blocks * cols;
      Case c{.name = cat("spread_linear ", tokens, " x ", rows, " x ", blocks, " x ", cols),
             .out = {tokens, rows}};
      c.inputs = {{"x", {tokens, width}, random_values(tokens * width, "x")},
                  {"table", {rows, cols}, random_values(rows * cols, "table"), true},
                  {"residual", {tokens, rows}, random_values(tokens * rows, "residual")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        return spread_linear(t[0], t[1], make_ids(ctx, ids), t[2]);
      };
      // Calls use(token, row, element of x, element of the table) for each product.
      auto each = [=, rows = rows, blocks = blocks, cols = cols](auto&& use) {
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t n = 0; n < rows; ++n)
            for (int64_t m = 0; m < blocks; ++m)
              for (int64_t j = 0; ids[static_cast<size_t>(n * blocks + m)] >= 0 && j < cols; ++j)
                use(static_cast<size_t>(t * rows + n),
                    static_cast<size_t>(t * width + m * cols + j),
                    static_cast<size_t>(n * cols + j));
      };
      c.forward = [=](const std::vector<Values>& v) {
        Values y = v[2];
        each([&](size_t at, size_t x, size_t w) { y[at] += v[0][x] * v[1][w]; });
        return y;
      };
      c.backward = [=](const std::vector<Values>& v, const Values& dy) {
        std::vector<Values> d = {Values(v[0].size(), 0), Values(v[1].size(), 0), dy};
        each([&](size_t at, size_t x, size_t w) {
          d[0][x] += dy[at] * v[1][w];
          d[1][w] += dy[at] * v[0][x];
        });
        return d;
      };
      c.bound.sums = 64;
      check(c, figures);
    }
}

// The mask as it is defined: element i of the global batch is kept when the stream's number i is at
// least p.
Values dropout_factors(ExecutionContext& ctx, int64_t count, int64_t first, double p) {
  RngStream stream(ctx.seed(), name_key("drop"), ctx.step);
  Values factors;
  for (int64_t i = 0; i < count; ++i)
    factors.push_back(stream.uniform(static_cast<uint64_t>(first + i)) >= static_cast<float>(p)
                          ? 1 / (1 - p)
                          : 0);
  return factors;
}

TEST_CASE("dropout: values and gradients") {
  Figures figures("dropout");
  for (int64_t rows : kOddSizes)
    for (double p : {0.1, 0.5, 0.9}) {
      constexpr int64_t kCols = 33, kFirst = 1000;
      Fixture other;  // seeds are alike
      other.context().step = 5;
      Values factors = dropout_factors(other.context(), rows * kCols, kFirst * kCols, p);
      Case c{.name = cat("dropout ", p, " ", rows), .out = {rows, kCols}};
      c.inputs = {{"x", {rows, kCols}, random_values(rows * kCols, "x")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        ctx.step = 5;
        ctx.first_token = kFirst;
        Tensor y = dropout(t[0], static_cast<float>(p), name_key("drop"));
        ctx.step = 6;  // backward must use the forward's mask all the same
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

TEST_CASE("dropout: the mask does not depend on how the tokens are split") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kRows = 24, kCols = 17;
  Tensor x = make(ctx, Values(kRows * kCols, 1.0), {kRows, kCols}, DType::f32);
  ctx.first_token = 100;
  Values whole = values_of(dropout(x, 0.3f, 77));
  for (int64_t rows : {1, 5, 12, 23}) {
    ctx.first_token = 100;
    Values parts = values_of(dropout(x.slice(0, 0, rows), 0.3f, 77));
    ctx.first_token = 100 + rows;
    Values second = values_of(dropout(x.slice(0, rows, kRows), 0.3f, 77));
    parts.insert(parts.end(), second.begin(), second.end());
    CHECK(parts == whole);
  }
}

TEST_CASE("dropout: rows that are some of the tokens draw what those tokens draw") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kRows = 24, kCols = 17;
  auto ones = [&](int64_t rows) {
    return make(ctx, Values(static_cast<size_t>(rows * kCols), 1.0), {rows, kCols}, DType::f32);
  };
  ctx.first_token = 100;
  Values whole = values_of(dropout(ones(kRows), 0.3f, 77)), picked;
  const std::vector<RowRange> tokens = {{3, 4}, {7, 1}, {20, 4}, {0, 2}};
  for (const RowRange& r : tokens)
    picked.insert(picked.end(), whole.begin() + r.first * kCols,
                  whole.begin() + (r.first + r.rows) * kCols);
  ctx.own_tokens = std::make_shared<const std::vector<RowRange>>(tokens);
  auto probe = std::make_shared<Catcher>();
  Tensor x = ones(11);
  x.set_node(probe);
  Tensor y = dropout(x, 0.3f, 77),
         again = recompute([](const Tensor&in) { return dropout(in, 0.3f, 77); }, x);
  CHECK(values_of(y) == picked);
  CHECK_THROWS_AS(dropout(ones(12), 0.3f, 77), Error);
  ctx.own_tokens = nullptr;  // another micro-batch is in flight
  ctx.first_token = 0;
  backward(y, ones(11));
  CHECK(values_of(probe->grad) == picked);
  probe->has_grad = false;
  backward(again, ones(11));
  CHECK(values_of(probe->grad) == picked);
  CHECK(ctx.own_tokens == nullptr);
}

TEST_CASE(
    "dropout: the share of kept elements is 1 - p and masks of names, steps, seeds and tokens "
    "differ") {
  Fixture lab(2, 1), other(2, 2);
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kRows = 200, kCols = 129;
  auto mask = [](ExecutionContext& r, float p, uint64_t key) {
    return values_of(
        dropout(make(r, Values(kRows * kCols, 1.0), {kRows, kCols}, DType::f32), p, key));
  };
  for (float p : {0.1f, 0.5f, 0.75f}) {
    double kept = 0;
    for (double v : mask(ctx, p, 3)) kept += v > 0;
    double n = kRows * kCols, deviation = std::sqrt(n * p * (1 - p));
    CHECK(std::fabs(kept - n * (1 - p)) < 4 * deviation);
  }
  Values first = mask(ctx, 0.5f, 3);
  CHECK(mask(ctx, 0.5f, 3) == first);
  CHECK(mask(ctx, 0.5f, 4) != first);
  CHECK(mask(other.context(), 0.5f, 3) != first);
  ctx.step = 1;
  CHECK(mask(ctx, 0.5f, 3) != first);
  ctx.step = 0;
  ctx.first_token = 1;
  CHECK(mask(ctx, 0.5f, 3) != first);
}

TEST_CASE("dropout: nothing happens at p = 0 and while evaluating") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, {1, 2, 3}, {1, 3}, DType::f32);
  CHECK(dropout(x, 0, 1).raw() == x.raw());
  ctx.training = false;
  CHECK(dropout(x, 0.5f, 1).raw() == x.raw());
  ctx.training = true;
  CHECK_THROWS_AS(dropout(x, 1, 1), Error);
}

}  // namespace
}  // namespace mtrain::contract
