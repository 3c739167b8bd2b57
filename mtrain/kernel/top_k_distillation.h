// The divergence of a student from a teacher of which k log-probabilities and that of all other ids
// together, the rest, are known, for one row of logits. Both distributions are over k + 1 outcomes:
// the rest of the student is the sum of its probabilities s over these ids. A sum over outcomes
// never exceeds the divergence over all ids (data processing inequality; Cover and Thomas 2006,
// Elements of Information Theory, 2.8), and equals it for k = all ids. It is also the divergence
// over all ids from the teacher
//   t_i = s_i · (rest of the teacher) / (rest of the student)   for the ids i of the rest,
// whose gradient at fixed t is the same: the rest's is that of each of its ids, with one difference
// log t_i - log s_i for all of them. Names and kinds of divergence: mtrain/kernel/distillation.h.
// Stateless.
#pragma once
#include <limits>

#include "mtrain/kernel/distillation.h"

namespace mtrain {

/// The teacher's outcomes of one row. The ids ascend; a row without a distribution has none that a
/// column has (all -1) and an ignored target.
struct TopKOutcomes {
  const int32_t* ids;
  const float* log_probabilities;
  int64_t k;
  float log_rest;
  bool has_rest;  // false: the k ids are all that both models have
};

/// Whether `id` is one of the k ascending ids.
MT_HD bool contains_id(const int32_t* ids, int64_t k, int64_t id) {
  int64_t low = 0, high = k;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (ids[middle] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < k && ids[low] == id;
}

/// Calls f(begin, count) for the columns of [0, n), whose ids are from `first` on, between those of
/// the k ids.
template <class F>
MT_HD void each_gap(const int32_t* ids, int64_t k, int64_t first, int64_t n, F&& f) {
  int64_t begin = 0;
  for (int64_t j = 0; j <= k; ++j) {
    const int64_t column = j < k ? ids[j] - first : n;
    if (column < begin) continue;  // of another shard
    const int64_t end = column < n ? column : n;
    if (end > begin) f(begin, end - begin);
    if (column >= n) return;
    begin = column + 1;
  }
}

/// lse = log Σ exp(value(i)) over the columns of [0, n) that are not among the k ids; -infinity if
/// there are none. A core takes the gaps between the ids, which vectorise; a GPU's threads search.
template <class Team, class F>
MT_HD void rest_lse_row(Team team, const int32_t* ids, int64_t k, int64_t first, int64_t n,
                        F&& value, float* lse) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float top = kNone, sum = 0;
  if constexpr (Team::kSerial) {
    each_gap(ids, k, first, n, [&](int64_t begin, int64_t count) {
      const float most = team.max(count, [&](int64_t i) { return value(begin + i); });
      top = most > top ? most : top;
    });
    each_gap(ids, k, first, n, [&](int64_t begin, int64_t count) {
      sum += team.sum(count, [&](int64_t i) { return exp_nonpositive(value(begin + i) - top); });
    });
  } else {
    auto in_rest = [&](int64_t i) { return !contains_id(ids, k, first + i); };
    top = team.max(n, [&](int64_t i) { return in_rest(i) ? value(i) : kNone; });
    sum =
        team.sum(n, [&](int64_t i) { return in_rest(i) ? exp_nonpositive(value(i) - top) : 0.0f; });
  }
  team.once([&] { *lse = top > kNone ? top + std::log(sum) : kNone; });
}

/// own[j]: the student's logit of the j-th id, -infinity if it is not among the `n` columns;
/// rest_lse: of the logits divided by the temperature of the other columns. Both 0 where the target
/// is ignored.
template <class Team, class T, class Map>
MT_HD void top_k_logits_row(Team team, const T* logits, Map map, float inverse_temperature,
                            const int32_t* ids, int64_t k, int32_t target, int64_t first, int64_t n,
                            float* own, float* rest_lse) {
  if (target < 0) {
    team.each(k, [&](int64_t j) { own[j] = 0; });
    team.once([&] { *rest_lse = 0; });
    return;
  }
  team.each(k, [&](int64_t j) {
    const int64_t column = ids[j] - first;
    own[j] = column >= 0 && column < n ? map.value(to_float(logits[column]))
                                       : -std::numeric_limits<float>::infinity();
  });
  rest_lse_row(
      team, ids, k, first, n,
      [&](int64_t i) { return map.value(to_float(logits[i])) * inverse_temperature; }, rest_lse);
}

/// The divergence, and Σ s g; both 0 where the target is ignored. For a shard of the vocabulary,
/// given the lse of the whole one: this shard's part of both sums; `counts_rest` on one of them.
template <class Team, class Divergence>
MT_HD void top_k_distillation_row(Team team, const TopKOutcomes& teacher, const float* own,
                                  Divergence divergence, float inverse_temperature, float lse,
                                  float rest_lse, int32_t target, bool counts_rest, float* loss,
                                  float* mean) {
  Pair sums{0, 0};
  if (target >= 0)
    sums = team.sum2(teacher.k, [&](int64_t j) {
      const bool here = own[j] > -std::numeric_limits<float>::infinity();
      const Pair one = divergence.terms(here ? own[j] * inverse_temperature - lse : 0.0f,
                                        teacher.log_probabilities[j]);
      return here ? one : Pair{0, 0};
    });
  team.once([&] {
    if (target >= 0 && counts_rest && teacher.has_rest) {
      const Pair rest = divergence.terms(rest_lse - lse, teacher.log_rest);
      sums.first += rest.first;
      sums.second += rest.second;
    }
    *loss = sums.first;
    *mean = sums.second;
  });
}

/// As distillation_row_backward(): first every column as one of the rest, then the k ids.
template <class Team, class T, class Map, class Divergence>
MT_HD void top_k_distillation_row_backward(Team team, const T* logits, Map map,
                                           float inverse_temperature, const TopKOutcomes& teacher,
                                           const float* own, Divergence divergence, int32_t target,
                                           int64_t first, int64_t shared, int64_t valid, int64_t n,
                                           float token_lse, float lse, float rest_lse, float mean,
                                           float alpha, float d_loss, T* d_logits) {
  if (target < 0) {
    team.each(n, [&](int64_t i) { d_logits[i] = T(0.0f); });
    return;
  }
  const int64_t column = target - first;
  const float of_tokens = alpha * d_loss,
              of_divergence = (1 - alpha) * d_loss * inverse_temperature,
              difference = teacher.has_rest ? teacher.log_rest - (rest_lse - lse) : 0.0f;
  auto of_logit = [&](int64_t i, float z, bool learnt, float log_s, float log_t) {
    float g = of_tokens * (exp_fast(z - token_lse) - (i == column ? 1.0f : 0.0f));
    if (learnt) g += of_divergence * divergence.gradient(log_s, log_t, mean);
    d_logits[i] = T(g * map.slope(z));
  };
  team.each(valid, [&](int64_t i) {
    const float z = map.value(to_float(logits[i])), log_s = z * inverse_temperature - lse;
    of_logit(i, z, i < shared, log_s, log_s + difference);
  });
  team.each(n - valid, [&](int64_t i) { d_logits[valid + i] = T(0.0f); });
  team.each(teacher.k, [&](int64_t j) {
    if (own[j] > -std::numeric_limits<float>::infinity())
      of_logit(teacher.ids[j] - first, own[j], true, own[j] * inverse_temperature - lse,
               teacher.log_probabilities[j]);
  });
}

}  // namespace mtrain
