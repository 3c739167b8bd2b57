// The divergence between the distributions of a student and a teacher over the vocabulary, for one
// row of logits. With z = map(student's logit) / temperature, s = softmax(z), t = softmax(teacher's
// logits / temperature) and m = beta t + (1 - beta) s (Agarwal et al. 2024, arXiv:2306.13649;
// PyPI's trl, GKDTrainer.generalized_jsd_loss):
//   beta = 0: KL(t ‖ s);  beta = 1: KL(s ‖ t);  else beta KL(t ‖ m) + (1 - beta) KL(s ‖ m)
// Where d loss / d log s_i at fixed probabilities of m is s_i g_i, the gradient is
// d loss / d z_i = s_i (g_i - Σ s g), and with beta = 0 it is s_i - t_i. Stateless.
#pragma once
#include <cmath>

#include "mtrain/kernel/math.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// The kinds of divergence. Each has two functions of the log-probabilities that student and
/// teacher give one token: `terms` returns this token's addends of the loss and of Σ s g;
/// `gradient` returns the gradient of the loss with respect to z, given Σ s g (`mean`).
struct ForwardKl {
  MT_HD Pair terms(float log_s, float log_t) const {
    return {exp_fast(log_t) * (log_t - log_s), 0};
  }
  MT_HD float gradient(float log_s, float log_t, float) const {
    return exp_fast(log_s) - exp_fast(log_t);
  }
};
struct ReverseKl {
  MT_HD Pair terms(float log_s, float log_t) const {
    const float term = exp_fast(log_s) * (log_s - log_t);
    return {term, term};
  }
  MT_HD float gradient(float log_s, float log_t, float mean) const {
    return exp_fast(log_s) * (log_s - log_t - mean);
  }
};
struct JensenShannon {
  float beta, log_beta, log_rest;  // log(beta), log(1 - beta)
  /// The logarithm of the mixture's probability.
  MT_HD float log_mixture(float log_s, float log_t) const {
    const float a = log_s + log_rest, b = log_t + log_beta, top = a > b ? a : b;
    return top + std::log(exp_fast(a - top) + exp_fast(b - top));
  }
  MT_HD Pair terms(float log_s, float log_t) const {
    const float log_m = log_mixture(log_s, log_t);
    const float own = (1 - beta) * exp_fast(log_s) * (log_s - log_m);
    return {beta * exp_fast(log_t) * (log_t - log_m) + own, own};
  }
  MT_HD float gradient(float log_s, float log_t, float mean) const {
    return exp_fast(log_s) * ((1 - beta) * (log_s - log_mixture(log_s, log_t)) - mean);
  }
};

/// Calls f with the divergence of `beta` in [0, 1].
template <class F>
MT_HD auto with_divergence(float beta, F&& f) {
  if (beta <= 0) return f(ForwardKl{});
  if (beta >= 1) return f(ReverseKl{});
  return f(JensenShannon{beta, std::log(beta), std::log1p(-beta)});
}

/// The logarithms of the probabilities of column i.
template <class T, class Map>
struct LogProbabilities {
  const T *student, *teacher;
  Map map;
  float inverse_temperature, lse, teacher_lse;  // of the logits divided by the temperature
  MT_HD float of_student(int64_t i) const {
    return map.value(to_float(student[i])) * inverse_temperature - lse;
  }
  MT_HD float of_teacher(int64_t i) const {
    return to_float(teacher[i]) * inverse_temperature - teacher_lse;
  }
};

/// The divergence over the first `n` columns, and Σ s g; both 0 where the target is ignored (< 0).
/// For a shard of the vocabulary, given the lse of the whole one: this shard's part of both sums.
template <class Team, class T, class Map, class Divergence>
MT_HD void distillation_row(Team team, const LogProbabilities<T, Map>& logs, Divergence divergence,
                            int32_t target, int64_t n, float* loss, float* mean) {
  Pair sums{0, 0};
  if (target >= 0)
    sums = team.sum2(
        n, [&](int64_t i) { return divergence.terms(logs.of_student(i), logs.of_teacher(i)); });
  team.once([&] {
    *loss = sums.first;
    *mean = sums.second;
  });
}

/// The gradient of d_loss · (alpha · cross-entropy + (1 - alpha) · divergence): the divergence is
/// that of the first `shared` columns, the cross-entropy (with `token_lse`, at temperature 1) that
/// of the first `valid` ones. 0 in ignored rows and in padding. `d_logits` may be the student's.
template <class Team, class T, class Map, class Divergence>
MT_HD void distillation_row_backward(Team team, const LogProbabilities<T, Map>& logs,
                                     Divergence divergence, int32_t target, int64_t first,
                                     int64_t shared, int64_t valid, int64_t n, float token_lse,
                                     float mean, float alpha, float d_loss, T* d_logits) {
  if (target < 0) {
    team.each(n, [&](int64_t i) { d_logits[i] = T(0.0f); });
    return;
  }
  const int64_t column = target - first;
  const float of_tokens = alpha * d_loss,
              of_divergence = (1 - alpha) * d_loss * logs.inverse_temperature;
  team.each(valid, [&](int64_t i) {
    const float z = logs.map.value(to_float(logs.student[i]));
    float g = of_tokens * (exp_fast(z - token_lse) - (i == column ? 1.0f : 0.0f));
    if (i < shared)
      g += of_divergence *
           divergence.gradient(z * logs.inverse_temperature - logs.lse, logs.of_teacher(i), mean);
    d_logits[i] = T(g * logs.map.slope(z));
  });
  team.each(n - valid, [&](int64_t i) { d_logits[valid + i] = T(0.0f); });
}

}  // namespace mtrain
