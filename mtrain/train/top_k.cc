#include "mtrain/train/top_k.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>

#include "mtrain/base/error.h"
#include "mtrain/base/parallel.h"
#include "mtrain/kernel/math.h"
#include "mtrain/nn/vocabulary.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The candidates of some tokens, `k` each with padding (id -1), and the log-sum-exp of all others.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<double> values;  // logits divided by the temperature
  std::vector<double> rest;

  Candidates(int64_t tokens, int64_t k)
      : ids(static_cast<size_t>(tokens * k), -1),
        values(ids.size(), kNone),
        rest(static_cast<size_t>(tokens), kNone) {}
};

struct Scored {
  double value;
  int32_t id;
  /// True if this one is chosen before the other.
  bool before(const Scored& other) const {
    return value > other.value || (value == other.value && id < other.id);
  }
};

double log_sum(double a, double b) {
  const double top = std::max(a, b);
  return top == kNone ? kNone : top + std::log(std::exp(a - top) + std::exp(b - top));
}

/// The first k of the values, whose ids are from `first` on, in any order.
void select_of(std::span<const float> values, int64_t first, size_t k, std::vector<Scored>& out) {
  const auto later = [](const Scored& a, const Scored& b) { return a.before(b); };
  out.clear();
  float least = 0;  // of those that are chosen; the last one to be chosen is in front
  for (size_t i = 0; i < values.size(); ++i) {
    if (out.size() == k && values[i] <= least) continue;  // of equal ones, the first is chosen
    if (out.size() == k) std::pop_heap(out.begin(), out.end(), later), out.pop_back();
    out.push_back(
        {static_cast<double>(values[i]), static_cast<int32_t>(first + static_cast<int64_t>(i))});
    std::push_heap(out.begin(), out.end(), later);
    least = static_cast<float>(out.front().value);
  }
}

constexpr size_t kLanes = 16;  // independent ones, so that loops vectorise

/// Calls f(value, lane) for all values, with the lanes in turn.
template <class F>
void in_lanes(std::span<const float> values, F&& f) {
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) f(values[i + lane], lane);
  for (size_t lane = 0; i < values.size(); ++i, ++lane) f(values[i], lane);
}

/// The largest value less than `least`; minus infinity: there is none.
float largest_below(std::span<const float> values, float least) {
  float lanes[kLanes];
  std::ranges::fill(lanes, -kInfinity);
  in_lanes(values, [&](float value, size_t lane) {
    const float below = value < least ? value : -kInfinity;
    lanes[lane] = below > lanes[lane] ? below : lanes[lane];
  });
  return *std::ranges::max_element(lanes);
}

/// The log-sum-exp, at the temperature, of the values that are not chosen.
double rest_of(std::span<const float> values, const std::vector<Scored>& chosen,
               float inverse_temperature) {
  constexpr size_t kPiece = 4096;  // a sum in float of so many, in lanes, is precise
  if (chosen.size() == values.size()) return kNone;
  const auto least = static_cast<float>(chosen.front().value);
  const auto equal =  // to the least one that is chosen
      std::ranges::count(values, least) -
      std::ranges::count(chosen, chosen.front().value, &Scored::value);
  const float top = equal > 0 ? least : largest_below(values, least);
  if (!std::isfinite(top)) return kNone;
  auto sum = static_cast<double>(equal);
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    float lanes[kLanes] = {};
    in_lanes(values.subspan(begin, std::min(kPiece, values.size() - begin)), [&](float value,
                                                                                 size_t lane) {
      const float x = (value - top) * inverse_temperature, e = exp_nonpositive(x < 0 ? x : 0);
      lanes[lane] += value < least ? e : 0;
    });
    for (float one : lanes) sum += static_cast<double>(one);
  }
  return static_cast<double>(top) * static_cast<double>(inverse_temperature) + std::log(sum);
}

/// Fills the candidates of tokens [begin, begin + rows) from this rank's logits of them.
void add_candidates(const std::vector<float>& logits, int64_t columns, int64_t used, int64_t first,
                    double temperature, int64_t begin, int64_t k, Candidates& out) {
  std::atomic<bool> broken = false;
  parallel_ranges(logits.size() / static_cast<size_t>(columns), 4, [&](size_t from, size_t to) {
    std::vector<Scored> chosen;
    for (size_t row = from; row < to; ++row) {
      const auto values =
          std::span(logits).subspan(row * static_cast<size_t>(columns), static_cast<size_t>(used));
      std::array<uint8_t, kLanes> odd = {};
      in_lanes(values, [&](float value, size_t lane) {
        odd[lane] = static_cast<uint8_t>(odd[lane] | !(value < kInfinity));
      });
      if (std::ranges::count(odd, 0) < std::ssize(odd)) broken = true;
      if (broken || values.empty()) continue;  // empty: a shard with padding only
      const size_t token = static_cast<size_t>(begin) + row;
      select_of(values, first, static_cast<size_t>(k), chosen);
      out.rest[token] = rest_of(values, chosen, static_cast<float>(1 / temperature));
      for (size_t j = 0; j < chosen.size(); ++j) {
        const size_t to = token * static_cast<size_t>(k) + j;
        out.ids[to] = chosen[j].id, out.values[to] = chosen[j].value / temperature;
      }
    }
  });
  MT_USER_CHECK(!broken, ErrorClass::numeric,
                "objective.teacher: the teacher's logits are not finite (NaN or infinity)",
                "check the teacher's weights with mtrain generate; in fp16 they may overflow: set "
                "mixed_precision.dtype=bf16");
}

/// The candidates of all ranks of the axis, one rank after the other.
Candidates gathered(const Candidates& own, int64_t k, const Axis& axis) {
  const auto tokens = static_cast<int64_t>(own.rest.size());
  Candidates all(tokens * axis.size(), k);
  axis.comm().all_gather(std::span<const int32_t>(own.ids), std::span(all.ids));
  axis.comm().all_gather(std::span<const double>(own.values), std::span(all.values));
  axis.comm().all_gather(std::span<const double>(own.rest), std::span(all.rest));
  return all;
}

float logarithm(double value) {
  return std::max(kLeastLogProbability, static_cast<float>(std::min(value, 0.0)));
}

/// The row of one token from the candidates of all `ranks`.
void join_candidates(const Candidates& all, int64_t ranks, int64_t tokens, int64_t token,
                     std::vector<Scored>& pool, TopKRows& out) {
  pool.clear();
  double rest = kNone;
  const auto k = static_cast<size_t>(out.k);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<size_t>(rank * tokens + token);
    rest = log_sum(rest, all.rest[at]);
    for (size_t j = at * k; j < (at + 1) * k; ++j)
      if (all.ids[j] >= 0) pool.push_back({all.values[j], all.ids[j]});
  }
  std::ranges::sort(pool, [](const Scored& a, const Scored& b) { return a.before(b); });
  double total = rest;
  for (size_t i = pool.size(); i-- > 0;) {
    if (i == k - 1) rest = total;  // of all that are not chosen
    total = log_sum(total, pool[i].value);
  }
  pool.resize(k);
  std::ranges::sort(pool, {}, &Scored::id);
  for (size_t j = 0; j < k; ++j) {
    const size_t to = static_cast<size_t>(token) * k + j;
    out.ids[to] = pool[j].id;
    out.log_probabilities[to] = logarithm(pool[j].value - total);
  }
  out.log_rest[static_cast<size_t>(token)] = logarithm(rest - total);
}

}  // namespace

TopKRows::TopKRows(int64_t of, int64_t tokens)
    : k(of),
      ids(static_cast<size_t>(of * tokens), -1),
      log_probabilities(ids.size(), 0),
      log_rest(static_cast<size_t>(tokens), 0) {}

void TopKRows::set(int64_t token, const TopKRows& other, int64_t from) {
  std::copy_n(other.ids.begin() + from * k, k, ids.begin() + token * k);
  std::copy_n(other.log_probabilities.begin() + from * k, k, log_probabilities.begin() + token * k);
  log_rest[static_cast<size_t>(token)] = other.log_rest[static_cast<size_t>(from)];
}

TopKRows most_likely(const Tensor& logits, int64_t shared, int64_t k, double temperature,
                     const Axis* vocabulary, int64_t vocab) {
  MT_CHECK(k > 0 && k <= shared, k, " of ", shared, " ids");
  constexpr int64_t kBytes = int64_t{64} << 20;
  ExecutionContext& ctx = logits.context();
  const int64_t tokens = logits.size(0), columns = logits.size(1);
  const VocabularyPart part = vocabulary_part(vocabulary, vocab);
  const int64_t used = std::clamp<int64_t>(shared - part.first, 0, columns),
                piece =
                    std::max<int64_t>(1, kBytes / (columns * static_cast<int64_t>(sizeof(float))));
  Candidates own(tokens, k);
  for (int64_t begin = 0; begin < tokens; begin += piece) {
    const int64_t end = std::min(tokens, begin + piece);
    const Tensor floats = ctx.empty({end - begin, columns}, DType::f32);
    ctx.copy(floats, logits.slice(0, begin, end));
    if (!ctx.backend().computes()) continue;
    std::vector<float> values(static_cast<size_t>(floats.numel()));
    ctx.download(floats, values.data());
    add_candidates(values, columns, used, part.first, temperature, begin, k, own);
  }
  if (!ctx.backend().computes()) return TopKRows(k, tokens);
  const bool sharded = part.join != nullptr;
  const Candidates all = sharded ? gathered(own, k, *vocabulary) : std::move(own);
  TopKRows out(k, tokens);
  parallel_ranges(static_cast<size_t>(tokens), 16, [&](size_t from, size_t to) {
    std::vector<Scored> pool;
    for (size_t token = from; token < to; ++token)
      join_candidates(all, sharded ? vocabulary->size() : 1, tokens, static_cast<int64_t>(token),
                      pool, out);
  });
  return out;
}

}  // namespace mtrain
