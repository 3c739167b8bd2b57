// The loss of distillation against its definition in double, with mapped logits, padding of student
// and teacher, and every divergence; and in chunks of tokens against the whole. trl's values:
// tests/golden/distillation_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "contract/distillation_cases.h"

namespace mtrain::contract {
namespace {

struct Problem {
  int64_t rows, cols, valid, teacher_cols, shared;
  double beta, temperature, alpha;
  LogitMap map = {};
};

/// Multiples of 1/4, which every dtype has.
Values teacher_values(const Problem& p) {
  Values out = random_values(p.rows * p.teacher_cols, "teacher", 3);
  for (double& one : out) one = std::round(4 * one) / 4;
  return out;
}

std::vector<int32_t> learnt_targets(const Problem& p) {
  std::vector<int32_t> out;
  for (int64_t t = 0; t < p.rows; ++t)
    out.push_back(t % 4 == 1 ? -1 : static_cast<int32_t>((t * 37 + 5) % p.valid));
  return out;
}

Distillation settings(ExecutionContext& ctx, const Problem& p, DType dtype) {
  return {.teacher_TV = make(ctx, teacher_values(p), {p.rows, p.teacher_cols}, dtype),
          .shared = p.shared,
          .temperature = static_cast<float>(p.temperature),
          .beta = static_cast<float>(p.beta),
          .alpha = static_cast<float>(p.alpha),
          .divergence_T = ctx.empty({p.rows}, DType::f32),
          .cross_entropy_T = ctx.empty({p.rows}, DType::f32)};
}

/// Logarithms of the softmax of n values.
Values log_softmax(const double* x, int64_t n, double temperature) {
  Values out(x, x + n);
  for (double& one : out) one /= temperature;
  const double top = *std::max_element(out.begin(), out.end());
  double sum = 0;
  for (double one : out) sum += std::exp(one - top);
  for (double& one : out) one -= top + std::log(sum);
  return out;
}

/// The divergence of one row, and its gradient with respect to the student's logarithms `s` at
/// fixed sum of probabilities, by the chain rule through each s_i = exp(log_s_i).
std::pair<double, Values> divergence(const Values& s, const Values& t, double beta) {
  double loss = 0;
  Values d(s.size(), 0);
  for (size_t i = 0; i < s.size(); ++i) {
    const double ps = std::exp(s[i]), pt = std::exp(t[i]);
    if (beta == 0) {
      loss += pt * (t[i] - s[i]), d[i] = -pt;
    } else if (beta == 1) {
      loss += ps * (s[i] - t[i]), d[i] = ps * (s[i] - t[i] + 1);
    } else {
      const double pm = beta * pt + (1 - beta) * ps, m = std::log(pm);
      loss += beta * pt * (t[i] - m) + (1 - beta) * ps * (s[i] - m);
      d[i] =
          (1 - beta) * ps * (s[i] - m + 1) - (beta * pt + (1 - beta) * ps) * (1 - beta) * ps / pm;
    }
  }
  return {loss, d};
}

/// Of mapped logits z: the losses, and with `dy` their gradient.
Values define(const Problem& p, const Values& z, const Values* dy) {
  const auto targets = learnt_targets(p);
  const Values teacher = teacher_values(p);
  Values losses = reference::cross_entropy(z, targets, p.cols, p.valid),
         gradient = reference::cross_entropy_backward(
             dy ? *dy : Values(static_cast<size_t>(p.rows), 0), z, targets, p.cols, p.valid);
  for (double& one : losses) one *= p.alpha;
  for (double& one : gradient) one *= p.alpha;
  for (int64_t r = 0; r < p.rows; ++r) {
    const auto row = static_cast<size_t>(r);
    if (targets[row] < 0) continue;
    const Values s = log_softmax(z.data() + r * p.cols, p.shared, p.temperature),
                 t = log_softmax(teacher.data() + r * p.teacher_cols, p.shared, p.temperature);
    const auto [loss, d] = divergence(s, t, p.beta);
    losses[row] += (1 - p.alpha) * loss;
    double sum = 0;
    for (double one : d) sum += one;
    for (size_t i = 0; dy && i < d.size(); ++i)
      gradient[static_cast<size_t>(r * p.cols) + i] +=
          (1 - p.alpha) * (*dy)[row] * (d[i] - std::exp(s[i]) * sum) / p.temperature;
  }
  return dy ? gradient : losses;
}

Case case_of(const Problem& p) {
  Case c{.name = cat("distillation ", p.rows, " x ", p.cols, " (", p.valid, "), teacher ",
                     p.teacher_cols, " (", p.shared, "), beta ", p.beta, ", temperature ",
                     p.temperature, ", alpha ", p.alpha, ", map ", p.map.scale, " ", p.map.cap),
         .out = {p.rows},
         .float_out = true};
  c.inputs = {{"logits", {p.rows, p.cols}, random_values(p.rows * p.cols, "logits", 2)}};
  c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
    const Distillation distillation = settings(ctx, p, t[0].dtype());
    return cross_entropy(std::move(t[0]), make_ids(ctx, learnt_targets(p)), p.valid, {}, p.map,
                         &distillation);
  };
  define_of_mapped(c, p.map,
                   [=](const Values& logits, const Values* dy) { return define(p, logits, dy); });
  c.bound.sums = 128;
  return c;
}

TEST_CASE("distillation: values and gradients") {
  Figures figures("distillation");
  for (auto [beta, temperature, alpha] : kDistillations) {
    for (int64_t rows : {1, 17})
      for (int64_t cols : {3, 33, 129})
        check(case_of({rows, cols, cols, cols, cols, beta, temperature, alpha}), figures);
    // Padding of another number of rows, and ids that only one of them has.
    check(case_of({9, 64, 60, 70, 60, beta, temperature, alpha}), figures);
    check(case_of({9, 64, 60, 56, 55, beta, temperature, alpha}), figures);
    check(case_of({9, 33, 30, 33, 30, beta, temperature, alpha, {0.5f, 3}}), figures);
    check(case_of({9, 33, 33, 40, 33, beta, temperature, alpha, {0.25f, 0}}), figures);
  }
}

TEST_CASE("distillation in chunks of tokens is that of all tokens") {
  // Logits of 139 MB are computed in two chunks.
  const Problem p{530, 65536, 65500, 65600, 65500, 0.5, 2, 0.25};
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kWidth = 5;
  auto solve = [&](bool fused) {
    Tensor x = make(ctx, random_values(p.rows * kWidth, "x"), {p.rows, kWidth}, DType::f32);
    const Tensor w = make(ctx, random_values(p.cols * kWidth, "w"), {p.cols, kWidth}, DType::f32);
    auto end = std::make_shared<Catcher>();
    x.set_node(end);
    const Distillation d = settings(ctx, p, DType::f32);
    const Tensor ids = make_ids(ctx, learnt_targets(p));
    const Tensor loss =
        fused ? linear_cross_entropy(x, w, ids, p.valid, 0.5f, {}, nullptr, nullptr, {}, {}, &d)
              : cross_entropy(linear(x, w), ids, p.valid, {}, {}, &d);
    backward(loss, make(ctx, Values(static_cast<size_t>(p.rows), 0.5), {p.rows}, DType::f32));
    return std::tuple(values_of(loss), values_of(end->grad), values_of(d.divergence_T));
  };
  CHECK(solve(true) == solve(false));
}

}  // namespace
}  // namespace mtrain::contract
