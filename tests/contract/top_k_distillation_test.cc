// The loss over a teacher's most likely ids and the rest against its definition in double, with
// mapped logits, padding, few and all ids, and every divergence; with all ids against the loss over
// whole distributions; and in chunks of tokens against the whole. Values of PyTorch:
// tests/golden/top_k_distillation, which the system test of distillation reads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "contract/distillation_cases.h"

namespace mtrain::contract {
namespace {

struct TopKProblem {
  int64_t rows, cols, valid, shared, k;
  double beta, temperature, alpha;
  double spread = 2;  // of the logits of both
  LogitMap map = {};
};

struct KnownIds {
  std::vector<int32_t> ids;  // [rows, k], ascending
  Values logs, rest;         // [rows, k], [rows]
};

std::vector<int32_t> top_k_targets(const TopKProblem& p) {
  std::vector<int32_t> out;
  for (int64_t t = 0; t < p.rows; ++t)
    out.push_back(t % 4 == 1 ? -1 : static_cast<int32_t>((t * 37 + 5) % p.valid));
  return out;
}

Values top_k_log_softmax(Values out) {
  const double top = *std::max_element(out.begin(), out.end());
  double sum = 0;
  for (double one : out) sum += std::exp(one - top);
  for (double& one : out) one -= top + std::log(sum);
  return out;
}

/// The k most likely of random logits, as the values that fp32 has.
KnownIds known_ids(const TopKProblem& p) {
  const Values all = random_values(p.rows * p.shared, "teacher", p.spread + 1);
  KnownIds out;
  for (int64_t r = 0; r < p.rows; ++r) {
    const Values logs =
        top_k_log_softmax(Values(all.begin() + r * p.shared, all.begin() + (r + 1) * p.shared));
    std::vector<int32_t> order(static_cast<size_t>(p.shared));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return logs[static_cast<size_t>(a)] > logs[static_cast<size_t>(b)];
    });
    std::sort(order.begin(), order.begin() + p.k);
    double rest = 0;
    for (int64_t j = 0; j < p.shared; ++j) {
      const double log = logs[static_cast<size_t>(order[static_cast<size_t>(j)])];
      if (j >= p.k)
        rest += std::exp(log);
      else
        out.ids.push_back(order[static_cast<size_t>(j)]),
            out.logs.push_back(static_cast<double>(static_cast<float>(log)));
    }
    out.rest.push_back(static_cast<double>(static_cast<float>(std::max(-1e4, std::log(rest)))));
  }
  return out;
}

Distillation of_ids(ExecutionContext& ctx, const TopKProblem& p, const KnownIds& known) {
  std::vector<float> logs(known.logs.begin(), known.logs.end()),
      rest(known.rest.begin(), known.rest.end());
  return {.shared = p.shared,
          .ids_TK = ctx.from_host<int32_t>(known.ids, {p.rows, p.k}),
          .log_probabilities_TK = ctx.from_host<float>(logs, {p.rows, p.k}),
          .log_rest_T = ctx.from_host<float>(rest, {p.rows}),
          .temperature = static_cast<float>(p.temperature),
          .beta = static_cast<float>(p.beta),
          .alpha = static_cast<float>(p.alpha),
          .divergence_T = ctx.empty({p.rows}, DType::f32),
          .cross_entropy_T = ctx.empty({p.rows}, DType::f32)};
}

/// The divergence over outcomes, and its gradient with respect to the student's logarithms `s`.
std::pair<double, Values> of_outcomes(const Values& s, const Values& t, double beta) {
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
      d[i] = (1 - beta) * ps * (s[i] - m);
    }
  }
  return {loss, d};
}

/// Adds the divergence of one row to `loss`, and its gradient, times `dy`, to `gradient`.
void add_row(const TopKProblem& p, const KnownIds& known, const double* z, int64_t r, double dy,
             double& loss, double* gradient) {
  Values scaled(z, z + p.shared);
  for (double& one : scaled) one /= p.temperature;
  const Values s = top_k_log_softmax(scaled);
  std::vector<int64_t> outcome(static_cast<size_t>(p.shared), p.k);  // of each id
  Values mine, teacher;
  for (int64_t j = 0; j < p.k; ++j) {
    const auto at = static_cast<size_t>(r * p.k + j);
    outcome[static_cast<size_t>(known.ids[at])] = j;
    mine.push_back(s[static_cast<size_t>(known.ids[at])]);
    teacher.push_back(known.logs[at]);
  }
  double rest = 0;
  for (size_t i = 0; i < s.size(); ++i) rest += outcome[i] == p.k ? std::exp(s[i]) : 0;
  if (p.k < p.shared)
    mine.push_back(std::log(rest)), teacher.push_back(known.rest[static_cast<size_t>(r)]);
  const auto [value, d] = of_outcomes(mine, teacher, p.beta);
  loss += (1 - p.alpha) * value;
  if (!gradient) return;
  const double sum = std::accumulate(d.begin(), d.end(), 0.0);
  for (size_t i = 0; i < s.size(); ++i) {
    const double of_id =
        d[static_cast<size_t>(outcome[i])] * (outcome[i] == p.k ? std::exp(s[i]) / rest : 1);
    gradient[i] += (1 - p.alpha) * dy * (of_id - std::exp(s[i]) * sum) / p.temperature;
  }
}

/// Of mapped logits z: the losses, and with `dy` their gradient.
Values define_top_k(const TopKProblem& p, const Values& z, const Values* dy) {
  const auto targets = top_k_targets(p);
  const KnownIds known = known_ids(p);
  Values losses = reference::cross_entropy(z, targets, p.cols, p.valid),
         gradient = reference::cross_entropy_backward(
             dy ? *dy : Values(static_cast<size_t>(p.rows), 0), z, targets, p.cols, p.valid);
  for (double& one : losses) one *= p.alpha;
  for (double& one : gradient) one *= p.alpha;
  for (int64_t r = 0; r < p.rows; ++r)
    if (targets[static_cast<size_t>(r)] >= 0)
      add_row(p, known, z.data() + r * p.cols, r, dy ? (*dy)[static_cast<size_t>(r)] : 0,
              losses[static_cast<size_t>(r)], dy ? gradient.data() + r * p.cols : nullptr);
  return dy ? gradient : losses;
}

Case top_k_case(const TopKProblem& p) {
  Case c{.name = cat("top ", p.k, " of ", p.shared, ", ", p.rows, " x ", p.cols, " (", p.valid,
                     "), beta ", p.beta, ", temperature ", p.temperature, ", alpha ", p.alpha,
                     ", spread ", p.spread, ", map ", p.map.scale, " ", p.map.cap),
         .out = {p.rows},
         .float_out = true};
  c.inputs = {{"logits", {p.rows, p.cols}, random_values(p.rows * p.cols, "logits", p.spread)}};
  c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
    const Distillation distillation = of_ids(ctx, p, known_ids(p));
    return cross_entropy(std::move(t[0]), make_ids(ctx, top_k_targets(p)), p.valid, {}, p.map,
                         &distillation);
  };
  define_of_mapped(c, p.map, [=](const Values& logits, const Values* dy) {
    return define_top_k(p, logits, dy);
  });
  c.bound.sums = p.spread > 2 ? 1024 : 192;  // a logarithm of -50 is off by up to 4e-6
  return c;
}

TEST_CASE("distillation of the most likely ids: values and gradients") {
  Figures figures("top-k distillation");
  for (auto [beta, temperature, alpha] : kDistillations) {
    for (int64_t rows : {1, 17})
      for (int64_t cols : {3, 33, 129})
        for (int64_t k : {int64_t{1}, (cols + 1) / 2, cols - 1, cols})
          check(top_k_case({rows, cols, cols, cols, k, beta, temperature, alpha}), figures);
    // Padding, and ids that only the student has.
    check(top_k_case({9, 64, 60, 60, 7, beta, temperature, alpha}), figures);
    check(top_k_case({9, 64, 60, 55, 7, beta, temperature, alpha}), figures);
    check(top_k_case({9, 64, 60, 55, 55, beta, temperature, alpha}), figures);
    check(top_k_case({9, 33, 30, 30, 4, beta, temperature, alpha, 2, {0.5f, 3}}), figures);
    check(top_k_case({9, 33, 33, 33, 4, beta, temperature, alpha, 2, {0.25f, 0}}), figures);
    // A student and a teacher that are certain, of different ids.
    check(top_k_case({9, 33, 33, 33, 4, beta, temperature, alpha, 9}), figures);
  }
}

struct Solved {
  Values loss, gradient, divergence;
};

Solved solve_cross_entropy(ExecutionContext& ctx, const TopKProblem& p, const Distillation& d) {
  Tensor logits =
      make(ctx, random_values(p.rows * p.cols, "logits", 2), {p.rows, p.cols}, DType::f32);
  auto end = std::make_shared<Catcher>();
  logits.set_node(end);
  const Tensor loss =
      cross_entropy(std::move(logits), make_ids(ctx, top_k_targets(p)), p.valid, {}, {}, &d);
  backward(loss, make(ctx, Values(static_cast<size_t>(p.rows), 0.5), {p.rows}, DType::f32));
  return {values_of(loss), values_of(end->grad), values_of(d.divergence_T)};
}

double farthest(const Values& a, const Values& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

TEST_CASE("distillation of all ids is that of whole distributions, of fewer at most that") {
  for (double beta : {0.0, 0.3, 1.0})
    for (double temperature : {1.0, 2.0}) {
      TopKProblem p{13, 65, 62, 60, 60, beta, temperature, 0.25};
      Fixture lab;
      ExecutionContext& ctx = lab.context();
      const KnownIds known = known_ids(p);
      Distillation whole = of_ids(ctx, p, known);
      whole.ids_TK = {}, whole.log_probabilities_TK = {}, whole.log_rest_T = {};
      Values logits = known.logs;
      for (double& one : logits) one *= temperature;
      whole.teacher_TV = make(ctx, logits, {p.rows, p.shared}, DType::f32);
      const Solved want = solve_cross_entropy(ctx, p, whole);
      const Solved all = solve_cross_entropy(ctx, p, of_ids(ctx, p, known));
      CHECK(farthest(all.loss, want.loss) < 1e-5);
      CHECK(farthest(all.gradient, want.gradient) < 1e-6);
      Values before = want.divergence;
      for (int64_t k : {40, 9, 1}) {
        p.k = k;
        const Values fewer = solve_cross_entropy(ctx, p, of_ids(ctx, p, known_ids(p))).divergence;
        for (size_t t = 0; t < fewer.size(); ++t) {
          CHECK(fewer[t] >= -1e-6);
          CHECK(fewer[t] <= before[t] + 1e-5);
        }
        before = fewer;
      }
    }
}

TEST_CASE("distillation of the most likely ids in chunks of tokens is that of all tokens") {
  // Logits of 139 MB are computed in two chunks.
  const TopKProblem p{530, 65536, 65500, 65500, 19, 0.5, 2, 0.25};
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  constexpr int64_t kWidth = 5;
  KnownIds known;  // ids at both ends and between
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t j = 0; j < p.k; ++j)
      known.ids.push_back(static_cast<int32_t>(j * (p.shared - 1) / (p.k - 1))),
          known.logs.push_back(std::log(0.9 / static_cast<double>(p.k)));
    known.rest.push_back(std::log(0.1));
  }
  auto solve = [&](bool fused) {
    Tensor x = make(ctx, random_values(p.rows * kWidth, "x"), {p.rows, kWidth}, DType::f32);
    const Tensor w = make(ctx, random_values(p.cols * kWidth, "w"), {p.cols, kWidth}, DType::f32);
    auto end = std::make_shared<Catcher>();
    x.set_node(end);
    const Distillation d = of_ids(ctx, p, known);
    const Tensor ids = make_ids(ctx, top_k_targets(p));
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
