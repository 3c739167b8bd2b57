// The router written out in double: scores, choices by sorting, weights; derivatives by central
// differences with the choices held. Stateless.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "contract/reference.h"
#include "mtrain/autograd/expert_ops.h"

namespace mtrain::contract {

using reference::Values;

inline Values router_scores(const Values& z, RouterRule::Score score) {
  Values s;
  for (double v : z)
    s.push_back(score == RouterRule::Score::softmax   ? std::exp(v)
                : score == RouterRule::Score::sigmoid ? 1 / (1 + std::exp(-v))
                                                      : std::sqrt(std::log(1 + std::exp(v))));
  double sum = std::accumulate(s.begin(), s.end(), 0.0);
  if (score == RouterRule::Score::softmax)
    for (double& v : s) v /= sum;
  return s;
}

/// Numbers of the largest, the largest first.
inline std::vector<size_t> largest(const Values& v, int64_t count) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v[a] > v[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

inline std::vector<size_t> router_choice(const Values& z, const RouterRule& rule, bool by_groups) {
  Values ranked = rule.score == RouterRule::Score::softmax && !rule.pre_softmax
                      ? z
                      : router_scores(z, rule.score);
  if (by_groups && rule.groups > 0) {
    size_t size = z.size() / static_cast<size_t>(rule.groups);
    Values sums;
    for (int64_t g = 0; g < rule.groups; ++g) {
      Values part(ranked.begin() + g * static_cast<int64_t>(size),
                  ranked.begin() + (g + 1) * static_cast<int64_t>(size));
      std::sort(part.rbegin(), part.rend());
      const int64_t wanted = rule.group_best > 0
                                 ? rule.group_best
                                 : std::max<int64_t>(1, rule.top_k / rule.group_top_k);
      auto best = std::min(size, static_cast<size_t>(wanted));
      sums.push_back(std::accumulate(part.begin(), part.begin() + static_cast<int64_t>(best), 0.0));
    }
    auto kept = largest(sums, rule.group_top_k);
    for (size_t e = 0; e < z.size(); ++e)
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) ranked[e] = -1e300;
  }
  return largest(ranked, rule.top_k);
}

inline Values chosen_weights(const Values& z, const RouterRule& rule,
                             const std::vector<size_t>& chosen) {
  Values s = router_scores(z, rule.score), w;
  for (size_t e : chosen) w.push_back(s[e]);
  bool divide = rule.normalize.value_or(rule.score == RouterRule::Score::softmax ? !rule.pre_softmax
                                                                                 : rule.top_k > 1);
  double sum = divide ? std::accumulate(w.begin(), w.end(), 0.0) : 1;
  for (double& v : w) v *= rule.scaling / sum;
  return w;
}

template <class F>
void each_token(const Values& z, int64_t experts, F&& f) {
  for (size_t t = 0; t < z.size() / static_cast<size_t>(experts); ++t)
    f(t, Values(z.begin() + static_cast<int64_t>(t) * experts,
                z.begin() + static_cast<int64_t>(t + 1) * experts));
}

inline Values router_weights(const Values& z, int64_t experts, const RouterRule& rule) {
  Values out;
  each_token(z, experts, [&](size_t, const Values& row) {
    Values w = chosen_weights(row, rule, router_choice(row, rule, true));
    out.insert(out.end(), w.begin(), w.end());
  });
  return out;
}

inline Values router_weights_backward(const Values& z, int64_t experts, const RouterRule& rule,
                                      const Values& dy) {
  constexpr double kStep = 1e-5;
  Values dz;
  each_token(z, experts, [&](size_t t, const Values& row) {
    auto chosen = router_choice(row, rule, true);
    for (size_t e = 0; e < row.size(); ++e) {
      Values high = row, low = row;
      high[e] += kStep, low[e] -= kStep;
      Values up = chosen_weights(high, rule, chosen), down = chosen_weights(low, rule, chosen);
      double sum = 0;
      for (size_t j = 0; j < up.size(); ++j)
        sum += dy[t * up.size() + j] * (up[j] - down[j]) / (2 * kStep);
      dz.push_back(sum);
    }
  });
  return dz;
}

/// Choices of each expert in each group of tokens, by score alone.
inline Values router_counts(const Values& z, int64_t experts, const RouterRule& rule,
                            const std::vector<int32_t>& group_of) {
  auto groups = static_cast<size_t>(*std::max_element(group_of.begin(), group_of.end())) + 1;
  Values out(groups * static_cast<size_t>(experts));
  each_token(z, experts, [&](size_t t, const Values& row) {
    for (size_t e : router_choice(row, rule, false))
      out[static_cast<size_t>(group_of[t]) * row.size() + e] += 1;
  });
  return out;
}

/// Σ over tokens of Σ_e f_e P_e with f_e from `counted`, groups of E numbers each.
inline double balance_sum(const Values& z, int64_t experts, const RouterRule& rule,
                          const Values& counted, const std::vector<int32_t>& group_of) {
  double total = 0;
  each_token(z, experts, [&](size_t t, const Values& row) {
    Values p = router_scores(row, rule.score);
    double sum = std::accumulate(p.begin(), p.end(), 0.0), all = 0;
    const double* counts = counted.data() + static_cast<size_t>(group_of[t]) * row.size();
    for (size_t e = 0; e < row.size(); ++e) all += counts[e];
    for (size_t e = 0; e < row.size(); ++e)
      total += static_cast<double>(experts) * counts[e] / all * p[e] / sum;
  });
  return total;
}

inline double z_sum(const Values& z, int64_t experts) {
  double total = 0;
  each_token(z, experts, [&](size_t, const Values& row) {
    double sum = 0;
    for (double v : row) sum += std::exp(v);
    total += std::log(sum) * std::log(sum);
  });
  return total;
}

}  // namespace mtrain::contract
