// Dual: a number with its derivatives with respect to the log-probabilities, or the scores, of a
// record's answers, for objectives (objective.h): an expression of Duals computes its derivatives
// along with its value. Values; stateless functions, safe from any thread.
#pragma once
#include <cmath>

#include "mtrain/optim/objective.h"

namespace mtrain {

struct Dual {
  double value = 0, d_chosen = 0, d_rejected = 0;
  /// The log-probability of the chosen answer, or of the only one, and that of the rejected one.
  static Dual chosen(const Answer& a) { return {a.logp, 1, 0}; }
  static Dual rejected(const Answer& a) { return {a.logp, 0, 1}; }
  /// The same of the scores, for objectives over scores.
  static Dual chosen_score(const Answer& a) { return {a.score, 1, 0}; }
  static Dual rejected_score(const Answer& a) { return {a.score, 0, 1}; }
  /// Applies a function to this number: `result` is its value there, `slope` its derivative.
  Dual map(double result, double slope) const {
    return {result, slope * d_chosen, slope * d_rejected};
  }
};

inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.value + b.value, a.d_chosen + b.d_chosen, a.d_rejected + b.d_rejected};
}
inline Dual operator*(double factor, const Dual& a) { return a.map(factor * a.value, factor); }
inline Dual operator-(const Dual& a) { return -1.0 * a; }
inline Dual operator-(const Dual& a, const Dual& b) { return a + -b; }
inline Dual operator+(const Dual& a, double b) { return a.map(a.value + b, 1); }
inline Dual operator-(const Dual& a, double b) { return a + -b; }
inline Dual operator-(double a, const Dual& b) { return -b + a; }
inline Dual operator/(const Dual& a, double divisor) { return (1 / divisor) * a; }
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, a.d_chosen * b.value + b.d_chosen * a.value,
          a.d_rejected * b.value + b.d_rejected * a.value};
}

inline double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
inline Dual sigmoid(const Dual& x) {
  const double y = sigmoid(x.value);
  return x.map(y, y * sigmoid(-x.value));
}
/// log(1 / (1 + exp(-x)))
inline Dual log_sigmoid(const Dual& x) {
  const double y = std::fmin(x.value, 0) - std::log1p(std::exp(-std::fabs(x.value)));
  return x.map(y, sigmoid(-x.value));
}
/// max(0, x)
inline Dual relu(const Dual& x) { return x.value <= 0 ? Dual() : x; }  // NaN stays
inline Dual square(const Dual& x) { return x * x; }
/// log(1 - exp(x)) for x < 0. A log-probability that is rounded to 0 counts as -1e-7, so that value
/// and slope are finite.
inline Dual log1mexp(const Dual& x) {
  const double most = x.value > -1e-7 ? -1e-7 : x.value, gone = -std::expm1(most);  // 1 - exp(x)
  return x.map(std::log(gone), -std::exp(most) / gone);
}

/// The loss with its derivatives.
inline ObjectiveValue value_of(const Dual& loss, double reward_chosen, double reward_rejected) {
  return {.loss = loss.value,
          .d_chosen = loss.d_chosen,
          .d_rejected = loss.d_rejected,
          .reward_chosen = reward_chosen,
          .reward_rejected = reward_rejected};
}

}  // namespace mtrain
