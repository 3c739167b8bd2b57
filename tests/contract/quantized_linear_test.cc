// Products in FP8 and FP4 against their composition: operands rounded one by one, multiplied in
// double.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "contract/harness.h"
#include "mtrain/autograd/expert_ops.h"
#include "mtrain/kernel/quantize.h"

namespace mtrain::contract {
namespace {

constexpr int64_t kProductTokens = 64, kIn = 96, kOut = 160;

struct Operands {
  Values x, w, dy;
};

/// The values of a matrix [rows, cols] in FP8 or FP4, by the definitions of kernel/quantize.h.
/// Draws are not made here.
Values is_quantized(const Values& x, int64_t rows, int64_t cols, const QuantRule& rule,
                    QuantOperand kind, bool along_rows, double given_amax = 0) {
  QuantFormat format = kind == QuantOperand::gradient ? rule.backward : rule.forward;
  auto rounded = [&](float v) {
    return format == QuantFormat::e4m3   ? round_to_format<E4M3>(v)
           : format == QuantFormat::e5m2 ? round_to_format<E5M2>(v)
                                         : round_to_format<E2M1>(v);
  };
  auto largest = [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    double top = 0;
    for (int64_t r = r0; r < std::min(r1, rows); ++r)
      for (int64_t c = c0; c < std::min(c1, cols); ++c)
        top = std::max(top, std::fabs(x[static_cast<size_t>(r * cols + c)]));
    return static_cast<float>(top);
  };
  float all = given_amax > 0 ? static_cast<float>(given_amax) : largest(0, rows, 0, cols);
  bool weight = kind == QuantOperand::weight;
  int64_t group = rule.recipe == QuantRecipe::blockwise ? 128
                  : rule.recipe == QuantRecipe::mxfp8   ? 32
                                                        : 16;
  bool square = weight && rule.recipe != QuantRecipe::mxfp8;
  int64_t down = square || along_rows ? group : 1, across = square || !along_rows ? group : 1;
  Values out(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      float top = largest(r / down * down, (r / down + 1) * down, c / across * across,
                          (c / across + 1) * across),
            global = 1;
      QuantScaling s;
      switch (rule.recipe) {
        case QuantRecipe::blockwise:
          s = power_of_two_scaling(top, max_of(format));
          break;
        case QuantRecipe::mxfp8:
          s = e8m0_scaling(top, max_of(format));
          break;
        case QuantRecipe::nvfp4:
          global = nvfp4_global(all).encode, s = nvfp4_scaling(top, global);
          break;
        default:
          s = tensor_scaling(all, max_of(format), rule.headroom);
      }
      auto i = static_cast<size_t>(r * cols + c);
      out[i] = static_cast<double>(rounded(static_cast<float>(x[i]) * s.encode)) *
               static_cast<double>(s.decode) / static_cast<double>(global);
    }
  return out;
}

std::vector<QuantRule> quantization_rules() {
  return {{.recipe = QuantRecipe::tensorwise},
          {.recipe = QuantRecipe::tensorwise, .backward = QuantFormat::e4m3},
          {.recipe = QuantRecipe::blockwise, .backward = QuantFormat::e4m3},
          {.recipe = QuantRecipe::mxfp8, .backward = QuantFormat::e5m2},
          {.recipe = QuantRecipe::nvfp4,
           .forward = QuantFormat::e2m1,
           .backward = QuantFormat::e2m1,
           .stochastic = false,
           .hadamard = false}};
}

QuantScale scale_of(const QuantRule& rule) {
  return rule.recipe == QuantRecipe::blockwise ? QuantScale::power_of_two
         : rule.recipe == QuantRecipe::mxfp8   ? QuantScale::e8m0
         : rule.recipe == QuantRecipe::nvfp4   ? QuantScale::nvfp4
                                               : QuantScale::tensor;
}

struct Results {
  Values y, dx, dw, db;
};

/// Runs the op with its gradients.
Results run_op(ExecutionContext& ctx, const Operands& v, DType dtype, const QuantizedProducts& how,
               bool later = false) {
  Tensor x = make(ctx, v.x, {kProductTokens, kIn}, dtype), w = make(ctx, v.w, {kOut, kIn}, dtype),
         b = make(ctx, Values(kOut, 0.5), {kOut}, dtype);
  auto x_end = std::make_shared<Catcher>();
  auto w_end = std::make_shared<Leaf>(), b_end = std::make_shared<Leaf>();
  w_end->grad = ctx.zeros({kOut, kIn}, DType::f32), b_end->grad = ctx.zeros({kOut}, DType::f32);
  x.set_node(x_end), w.set_node(w_end), b.set_node(b_end);
  Tensor y = linear(x, w, b, {}, &how);
  Results out{.y = values_of(y), .dx = {}, .dw = {}, .db = {}};
  DeferredGradients put_off;
  backward(y, make(ctx, v.dy, {kProductTokens, kOut}, dtype), later ? &put_off : nullptr);
  put_off.run();
  out.dx = values_of(x_end->grad), out.dw = values_of(w_end->grad), out.db = values_of(b_end->grad);
  return out;
}

Operands operands(DType dtype) {
  auto values = [&](int64_t n, const char* key, double scale) {
    Values v = random_values(n, key, scale);
    for (size_t i = 0; i < v.size(); i += 37) v[i] *= 20;
    return round_to(v, dtype);
  };
  return {values(kProductTokens * kIn, "small x", 1), values(kOut * kIn, "small w", 0.05),
          values(kProductTokens * kOut, "small dy", 1e-3)};
}

double relative(const Values& got, const Values& want) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i)
    apart += (got[i] - want[i]) * (got[i] - want[i]), size += want[i] * want[i];
  return std::sqrt(apart / size);
}

}  // namespace

TEST_CASE("products in FP8 and FP4 are those of the rounded operands") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (const QuantRule& rule : quantization_rules()) {
      CAPTURE(static_cast<int>(rule.recipe));
      CAPTURE(std::string(name(dtype)));
      Fixture lab;
      QuantizedProducts how(rule, 1);
      Operands v = operands(dtype);
      Results got = run_op(lab.context(), v, dtype, how),
              later = run_op(lab.context(), v, dtype, how, true);
      auto rounded = [&](const Values& x, int64_t rows, int64_t cols, QuantOperand kind,
                         bool along_rows) {
        return is_quantized(x, rows, cols, rule, kind, along_rows);
      };
      using enum QuantOperand;
      Values b(kOut, 0.5), y = reference::linear(rounded(v.x, kProductTokens, kIn, input, false),
                                                 rounded(v.w, kOut, kIn, weight, false), b,
                                                 kProductTokens, kIn, kOut);
      Values dx = reference::linear_backward(rounded(v.dy, kProductTokens, kOut, gradient, false),
                                             v.x, rounded(v.w, kOut, kIn, weight, true),
                                             kProductTokens, kIn, kOut)[0];
      Values dw = reference::linear_backward(rounded(v.dy, kProductTokens, kOut, gradient, true),
                                             rounded(v.x, kProductTokens, kIn, input, true), v.w,
                                             kProductTokens, kIn, kOut)[1];
      Values db = reference::linear_backward(v.dy, v.x, v.w, kProductTokens, kIn, kOut)[2];
      // Sums are in float; the tensor cores of Hopper keep 14 bits within a step of a sum of FP8
      // (DeepSeek-AI 2024, 3.3.2).
      double sums = lab.context().kernels().multiplies(scale_of(rule)) ? 1e-3 : 0;
      CHECK(relative(got.y, y) < roundoff(dtype) + sums);
      CHECK(relative(got.dx, dx) < roundoff(dtype) + sums);
      CHECK(relative(got.dw, dw) < 1e-6 + sums);
      CHECK(relative(got.db, db) < 1e-6);
      CHECK(got.dw == later.dw);
      // And they are near the products of the operands themselves, but not those.
      Values plain = reference::linear(v.x, v.w, b, kProductTokens, kIn, kOut);
      double apart = relative(got.y, plain);
      CHECK(apart > 0.005);
      CHECK(apart < (rule.forward == QuantFormat::e2m1 ? 0.3 : 0.05));
    }
}

TEST_CASE("NVFP4's draws and its Hadamard transform keep the gradient of a weight on average") {
  Operands v = operands(DType::bf16);
  for (bool hadamard : {false, true}) {
    QuantRule rule{.recipe = QuantRecipe::nvfp4,
                   .forward = QuantFormat::e2m1,
                   .backward = QuantFormat::e2m1,
                   .hadamard = hadamard};
    QuantizedProducts how(rule, 7);
    // x is rounded to nearest; so is the mean, but where the transform mixes it first.
    Values x =
        hadamard ? v.x : is_quantized(v.x, kProductTokens, kIn, rule, QuantOperand::input, true);
    Values exact = reference::linear_backward(v.dy, x, v.w, kProductTokens, kIn, kOut)[1];
    Fixture lab;
    Values mean(exact.size());
    double once = 0;
    constexpr int kDraws = 24;
    for (int i = 0; i < kDraws; ++i) {
      lab.context().step = static_cast<uint64_t>(i);
      Results got = run_op(lab.context(), v, DType::bf16, how);
      once = relative(got.dw, exact);
      for (size_t e = 0; e < mean.size(); ++e) mean[e] += got.dw[e] / kDraws;
    }
    CAPTURE(hadamard);
    CHECK(once < 0.3);
    CHECK(relative(mean, exact) < (hadamard ? 0.7 : 0.35) * once);
  }
}

TEST_CASE("what is not finite is not hidden") {
  for (QuantRule rule : quantization_rules()) {
    CAPTURE(static_cast<int>(rule.recipe));
    Fixture lab;
    QuantizedProducts how(rule, 1);
    for (double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      Operands v = operands(DType::bf16);
      v.dy[5 * kOut + 3] = bad;
      Results got = run_op(lab.context(), v, DType::bf16, how);
      CHECK(std::isnan(got.dx[5 * kIn]));
      CHECK(std::isnan(got.dw[3 * kIn]));
    }
  }
}

TEST_CASE(
    "delayed scales come from the steps before, and from the tensor itself where there are none") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  std::vector<float> history(3 * 4);
  for (auto algorithm : {DelayedScales::Algorithm::max, DelayedScales::Algorithm::most_recent}) {
    std::fill(history.begin(), history.end(), 0.0f);
    DelayedScales scales(history, algorithm);
    QuantizedProducts how({.recipe = QuantRecipe::delayed, .headroom = 2}, 1),
        current({.recipe = QuantRecipe::tensorwise}, 1);
    how.delayed = &scales;
    auto amax = [&](double largest) {
      Tensor got = how.measure(ctx, make(ctx, {0.25, -largest, 0.125}, {1, 3}, DType::bf16),
                               QuantOperand::input);
      return values_of(got)[0];
    };
    auto end = [&](bool keep) { scales.end_step(scales.recorded(ctx), keep); };
    CHECK(amax(8) == 8);  // nothing is known
    CHECK(amax(4) == 4);
    end(true);
    CHECK(amax(16) == 8);  // the largest of the step before
    CHECK(amax(1) == 8);
    end(false);  // a step that was skipped leaves nothing
    CHECK(amax(2) == 8);
    end(true);
    CHECK(amax(1) == (algorithm == DelayedScales::Algorithm::max ? 8 : 2));
    for (int i = 0; i < 2; ++i) end(true), amax(1);
    // The step of 8 has left a history of four.
    end(true);
    CHECK(amax(3) == (algorithm == DelayedScales::Algorithm::max ? 2 : 1));
    ctx.training = false;
    CHECK(amax(100) == (algorithm == DelayedScales::Algorithm::max ? 2 : 1));
    ctx.training = true;
    CHECK(scales.recorded(ctx)[0] == 3);
    CHECK(scales.recorded(ctx)[2] == 0);
  }
}

namespace {

/// Codes of a stack of matrices as its owner makes them, piece by piece.
Tensor encoded(ExecutionContext& ctx, QuantizedProducts& how, const Tensor& stack,
               int64_t matrices) {
  QuantizedProducts own({.recipe = QuantRecipe::tensorwise}, 1);
  Tensor flat = stack.view({stack.numel()}), codes = ctx.empty(stack.shape(), DType::u8),
         out = codes.view({stack.numel()});
  int64_t size = stack.numel() / matrices;
  how.coded = {ctx.empty({matrices}, DType::f32), ctx.empty({matrices}, DType::f32)};
  for (int64_t m = 0; m < matrices; ++m) {
    Tensor measured =
        own.measure(ctx, flat.slice(0, m * size, (m + 1) * size), QuantOperand::weight);
    ctx.copy(how.coded.amax.slice(0, m, m + 1), measured);
    Tensor amax = how.delayed ? how.delayed->from_history(ctx, QuantOperand::weight) : measured;
    Tensor factor = how.coded.factors.slice(0, m, m + 1);
    for (auto [lo, hi] : {std::pair<int64_t, int64_t>{0, 300}, {300, size}})
      how.encode(ctx, flat.slice(0, m * size + lo, m * size + hi), amax,
                 out.slice(0, m * size + lo, m * size + hi), factor);
  }
  return codes;
}

struct Gradients {
  Values y, dx, dw;
};

/// Of grouped_linear, or of linear where the weight is one matrix.
Gradients products_of_rows(ExecutionContext& ctx, const Tensor& w, const QuantizedProducts& how,
                           const RowCounts& rows, int64_t tokens) {
  bool stack = w.shape().rank() == 3;
  int64_t out = w.size(stack ? 1 : 0), in = w.size(stack ? 2 : 1);
  Tensor x = make(ctx, random_values(tokens * in, "rows"), {tokens, in}, DType::bf16), weight = w;
  auto x_end = std::make_shared<Catcher>();
  auto w_end = std::make_shared<Leaf>();
  w_end->grad = ctx.zeros(w.shape(), DType::f32);
  x.set_node(x_end), weight.set_node(w_end);
  Tensor y =
      stack ? grouped_linear(x, weight, rows, nullptr, &how) : linear(x, weight, {}, {}, &how);
  backward(y, make(ctx, random_values(tokens * out, "top"), {tokens, out}, DType::bf16));
  return {values_of(y), values_of(x_end->grad), values_of(w_end->grad)};
}

}  // namespace

TEST_CASE("a weight of codes has the products of the weight that they were made from") {
  auto counts = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{24, 0, 16});
  std::vector<float> history(3 * 2, 0.7f);
  DelayedScales scales(history, DelayedScales::Algorithm::max);
  for (const Shape& shape : {Shape{48, 64}, Shape{48, 80}, Shape{3, 32, 64}})
    for (bool delayed : {false, true}) {
      CAPTURE(shape.rank());
      CAPTURE(delayed);
      Fixture lab;
      ExecutionContext& ctx = lab.context();
      DelayedScales own = scales;
      QuantizedProducts how(
          {.recipe = delayed ? QuantRecipe::delayed : QuantRecipe::tensorwise, .headroom = 2}, 1);
      if (delayed) how.delayed = &own;
      Tensor w = make(ctx, random_values(shape.numel(), "stack", 0.1), shape, DType::bf16);
      Gradients want = products_of_rows(ctx, w, how, counts, 40);
      auto seen = own.recorded(ctx);
      own = scales;
      Gradients got =
          products_of_rows(ctx, encoded(ctx, how, w, shape.rank() == 3 ? 3 : 1), how, counts, 40);
      CHECK(got.y == want.y);
      CHECK(got.dx == want.dx);
      CHECK(got.dw == want.dw);
      CHECK(values_of(how.coded.factors)[0] != 1);
      CHECK(own.recorded(ctx) == seen);  // not of the expert without rows
      if (delayed) CHECK(seen[1] > 0);
    }
}

TEST_CASE("codes without their scales are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  QuantizedProducts how({.recipe = QuantRecipe::tensorwise}, 1),
      plain({.recipe = QuantRecipe::mxfp8}, 1);
  Tensor codes = ctx.zeros({32, 32}, DType::u8), x = ctx.zeros({16, 32}, DType::bf16),
         amax = ctx.zeros({1}, DType::f32);
  CHECK_THROWS_AS(linear(x, codes, {}, {}, &how), Error);
  CHECK_THROWS_AS(linear(x, codes), Error);
  CHECK_THROWS_AS(plain.encode(ctx, amax, amax, {}, amax), Error);
}

TEST_CASE("experts in FP8 and FP4 are linear layers of their rows") {
  constexpr int64_t kRows = 40;
  auto counts = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{24, 0, 16});
  for (const QuantRule& rule : quantization_rules()) {
    CAPTURE(static_cast<int>(rule.recipe));
    Fixture lab;
    ExecutionContext& ctx = lab.context();
    QuantizedProducts how(rule, 1);
    Tensor x = make(ctx, random_values(kRows * 64, "rows"), {kRows, 64}, DType::bf16);
    Tensor w = make(ctx, random_values(3 * 32 * 64, "stack", 0.1), {3, 32, 64}, DType::bf16);
    Tensor dy = make(ctx, random_values(kRows * 32, "top"), {kRows, 32}, DType::bf16);
    auto x_end = std::make_shared<Catcher>();
    auto w_end = std::make_shared<Leaf>();
    w_end->grad = ctx.zeros({3, 32, 64}, DType::f32);
    x.set_node(x_end), w.set_node(w_end);
    Tensor y = grouped_linear(x, w, counts, nullptr, &how);
    backward(y, dy);
    Values all_y = values_of(y), all_dx = values_of(x_end->grad), all_dw = values_of(w_end->grad);
    int64_t begin = 0;
    for (int64_t e = 0; e < 3; begin += (*counts)[static_cast<size_t>(e)], ++e) {
      int64_t n = (*counts)[static_cast<size_t>(e)], end = begin + n;
      if (n == 0) {
        for (int64_t i = 0; i < 32 * 64; ++i)
          CHECK(all_dw[static_cast<size_t>(e * 32 * 64 + i)] == 0);
        continue;
      }
      Tensor own = x.detach().slice(0, begin, end),
             matrix = w.detach().slice(0, e, e + 1).view({32, 64});
      auto own_end = std::make_shared<Catcher>();
      auto matrix_end = std::make_shared<Leaf>();
      matrix_end->grad = ctx.zeros({32, 64}, DType::f32);
      own.set_node(own_end), matrix.set_node(matrix_end);
      Tensor alone = linear(own, matrix, {}, {}, &how);
      backward(alone, dy.slice(0, begin, end));
      auto part = [](const Values& v, int64_t from, int64_t count) {
        return Values(v.begin() + from, v.begin() + from + count);
      };
      CHECK(values_of(alone) == part(all_y, begin * 32, n * 32));
      CHECK(values_of(own_end->grad) == part(all_dx, begin * 64, n * 64));
      CHECK(values_of(matrix_end->grad) == part(all_dw, e * 32 * 64, 32 * 64));
    }
  }
}

}  // namespace mtrain::contract
