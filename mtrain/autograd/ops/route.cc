// The router: scores of all experts, the selection of K, their weights; and the balancing losses,
// whose gradients are added to those of the logits in backward. Computed in double on the host: E
// numbers per token cost little compared with the products of the experts, and the host needs the
// number of rows of each expert before it sends anything.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

using Score = RouterRule::Score;
using Row = std::vector<double>;

double sigmoid_of(double z) {
  return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z));
}
double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z))); }

double log_sum_exp(std::span<const double> z) {
  double top = *std::max_element(z.begin(), z.end()), sum = 0;
  for (double v : z) sum += std::exp(v - top);
  return top + std::log(sum);
}

/// The score of a single expert. REQUIRES: not softmax.
double own_score(Score kind, double z) {
  return kind == Score::sigmoid ? sigmoid_of(z) : std::sqrt(softplus(z));
}
double own_slope(Score kind, double z) {
  double s = own_score(kind, z);
  return kind == Score::sigmoid ? s * (1 - s) : (s > 0 ? sigmoid_of(z) / (2 * s) : 0);
}

/// Selects the `k` largest `scores` among the allowed ones, in descending order. NaN is larger than
/// nothing and smaller than nothing, so a NaN is selected only if it is the first allowed score.
void choose(std::span<const double> scores, int64_t k, std::vector<char>& allowed, int32_t* out) {
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (size_t e = 0; e < scores.size(); ++e)
      if (allowed[e] && (best < 0 || scores[e] > scores[static_cast<size_t>(best)]))
        best = static_cast<int32_t>(e);
    allowed[static_cast<size_t>(best)] = false;
    out[j] = best;
  }
}

/// Disallows the groups whose best scores have the smallest sums.
void keep_best_groups(std::span<const double> scores, const RouterRule& rule,
                      std::vector<char>& allowed) {
  if (rule.groups == 0 || rule.group_top_k == 0) return;
  size_t size = scores.size() / static_cast<size_t>(rule.groups);
  const int64_t wanted =
      rule.group_best > 0 ? rule.group_best : std::max<int64_t>(1, rule.top_k / rule.group_top_k);
  auto best = std::min(size, static_cast<size_t>(wanted));
  Row sums;
  for (size_t g = 0; g < static_cast<size_t>(rule.groups); ++g) {
    Row part(scores.begin() + static_cast<ptrdiff_t>(g * size),
             scores.begin() + static_cast<ptrdiff_t>((g + 1) * size));
    std::partial_sort(part.begin(), part.begin() + static_cast<ptrdiff_t>(best), part.end(),
                      std::greater<>());
    sums.push_back(std::accumulate(part.begin(), part.begin() + static_cast<ptrdiff_t>(best), 0.0));
  }
  std::vector<char> open(sums.size(), true);
  std::vector<int32_t> kept(static_cast<size_t>(rule.group_top_k));
  choose(sums, rule.group_top_k, open, kept.data());
  std::fill(allowed.begin(), allowed.end(), false);
  for (int32_t g : kept)
    std::fill_n(allowed.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(g) * size), size,
                true);
}

/// Computations for one token. `z` are its logits.
class TokenRouter {
 public:
  TokenRouter(const RouterRule& rule, int64_t experts)
      : rule_(rule), scores_(static_cast<size_t>(experts)) {}

  /// Scores independent of the selection: softmax over all experts, or each expert's own score.
  Row& scores(std::span<const double> z) {
    double lse = rule_.score == Score::softmax ? log_sum_exp(z) : 0;
    for (size_t e = 0; e < z.size(); ++e)
      scores_[e] =
          rule_.score == Score::softmax ? std::exp(z[e] - lse) : own_score(rule_.score, z[e]);
    return scores_;
  }

  void choose_experts(std::span<const double> z, std::span<const float> bias, bool by_groups,
                      int32_t* out) {
    // Softmax preserves the order of logits; sums of groups use the values from which the weights
    // are computed.
    bool logits = rule_.score == Score::softmax && !rule_.pre_softmax;
    ranked_ = logits ? Row(z.begin(), z.end()) : scores(z);
    for (size_t e = 0; e < bias.size(); ++e) ranked_[e] += static_cast<double>(bias[e]);
    allowed_.assign(z.size(), true);
    if (by_groups) keep_best_groups(ranked_, rule_, allowed_);
    choose(ranked_, rule_.top_k, allowed_, out);
  }
  /// Selects by other values than the scores.
  void choose_by(std::span<const double> scores, int32_t* out) {
    allowed_.assign(scores.size(), true);
    choose(scores, rule_.top_k, allowed_, out);
  }

  /// Weights of the selected experts: w_j = scaling · s_j / Σ s, or without the division.
  void weights(std::span<const double> z, const int32_t* chosen, double* w) {
    const Row& s = chosen_scores(z, chosen);
    double sum = normalised() ? std::accumulate(s.begin(), s.end(), 0.0) + kTiny : 1;
    for (size_t j = 0; j < s.size(); ++j) w[j] = rule_.scaling * s[j] / sum;
  }

  /// dz += the gradient of the weights.
  void weights_backward(std::span<const double> z, const int32_t* chosen, const float* dw,
                        Row& dz) {
    const Row& s = chosen_scores(z, chosen);
    double sum = normalised() ? std::accumulate(s.begin(), s.end(), 0.0) + kTiny : 1, mean = 0,
           moved = 0;
    for (size_t j = 0; normalised() && j < s.size(); ++j)
      mean += static_cast<double>(dw[j]) * s[j] / sum;
    for (size_t j = 0; j < s.size(); ++j) {
      auto e = static_cast<size_t>(chosen[j]);
      double ds = rule_.scaling * (static_cast<double>(dw[j]) - mean) / sum;
      dz[e] += ds * (rule_.score == Score::softmax ? s[j] : own_slope(rule_.score, z[e]));
      moved += ds * s[j];
    }
    if (rule_.score != Score::softmax || normalised()) return;
    const Row& all = scores(z);  // the softmax over all experts affects every logit
    for (size_t e = 0; e < all.size(); ++e) dz[e] -= moved * all[e];
  }

  /// The scores for balancing losses, normalized to a sum of 1.
  const Row& shares(std::span<const double> z) {
    Row& s = scores(z);
    if (rule_.score == Score::softmax) return s;
    double sum = std::accumulate(s.begin(), s.end(), 0.0) + kTiny;
    for (double& v : s) v /= sum;
    return s;
  }
  /// dz += the gradient of Σ_e c_e · share_e.
  void shares_backward(std::span<const double> z, std::span<const double> c, Row& dz) {
    const Row& p = shares(z);
    double mean = 0, sum = 1;
    for (size_t e = 0; e < p.size(); ++e) mean += c[e] * p[e];
    if (rule_.score != Score::softmax) {
      sum = kTiny;
      for (double v : z) sum += own_score(rule_.score, v);
    }
    for (size_t e = 0; e < p.size(); ++e)
      dz[e] += rule_.score == Score::softmax ? p[e] * (c[e] - mean)
                                             : (c[e] - mean) / sum * own_slope(rule_.score, z[e]);
  }

 private:
  static constexpr double kTiny = 1e-20;  // avoids a division by zero if all scores are 0
  bool normalised() const { return rule_.normalizes(); }

  const Row& chosen_scores(std::span<const double> z, const int32_t* chosen) {
    chosen_.resize(static_cast<size_t>(rule_.top_k));
    if (rule_.score == Score::softmax && !rule_.pre_softmax) {
      double top = z[static_cast<size_t>(chosen[0])];
      for (size_t j = 0; j < chosen_.size(); ++j)
        chosen_[j] = std::exp(z[static_cast<size_t>(chosen[j])] - top);
      return chosen_;
    }
    const Row& all = scores(z);
    for (size_t j = 0; j < chosen_.size(); ++j) chosen_[j] = all[static_cast<size_t>(chosen[j])];
    return chosen_;
  }

  const RouterRule& rule_;
  Row scores_, ranked_, chosen_;
  std::vector<char> allowed_;
};

/// Σ_e c[g,e] P[t,e] is token t's contribution to a term, where g is its group: a balancing term
/// once the selections are counted.
struct Slopes {
  BalanceTerm::Over over = BalanceTerm::Over::micro_batch;
  Row c;  // [groups, E]
};

/// Whether position t selects no expert: it is padding.
bool is_padding(std::span<const int32_t> experts, int64_t t, int64_t k) {
  return experts[static_cast<size_t>(t * k)] < 0;
}

/// A tensor with the shape and dtype of `like`.
Tensor from_host_values(ExecutionContext& ctx, const Row& values, const Tensor& like) {
  if (like.dtype() == DType::f64) return ctx.from_host<double>(values, like.shape());
  std::vector<float> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](double v) { return static_cast<float>(v); });
  return ctx.from_host<float>(rounded, like.shape());
}

struct Route {
  RouterRule rule;
  RouterRecord* record = nullptr;
  double z_coefficient = 0;
  float token_weight = 0;
  std::vector<Slopes> slopes;
  std::vector<int32_t> sequence_of;
  Tensor logits;
  std::vector<int32_t> experts;

  MaybePlacement placed(const Tensor& in) const {
    return ResultPlacement("route", in)
        .with(PlacementRule::pointwise)
        .unsharded(1, "a token's experts are chosen among all of them");
  }

  Row row(const Row& z, int64_t t, int64_t width) const {
    return Row(z.begin() + t * width, z.begin() + (t + 1) * width);
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& logits_in) {
    logits = logits_in.detach();
    int64_t tokens = logits.size(0), width = logits.size(1), k = rule.top_k;
    const Row z = host_values(logits);
    std::vector<float> w(static_cast<size_t>(tokens * k));
    TokenRouter router(rule, width);
    Row weights(static_cast<size_t>(k));
    for (int64_t t = 0; t < tokens; ++t) {
      if (is_padding(experts, t, k)) continue;
      router.weights(row(z, t, width), experts.data() + t * k, weights.data());
      std::transform(weights.begin(), weights.end(), w.begin() + t * k,
                     [](double v) { return static_cast<float>(v); });
    }
    return ctx.from_host<float>(w, {tokens, k});
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    int64_t tokens = logits.size(0), width = logits.size(1), k = rule.top_k;
    const Row z = host_values(logits);
    Row dz(z.size());
    std::vector<float> dw(static_cast<size_t>(dy.numel()));
    ctx.download(dy, dw.data());
    TokenRouter router(rule, width);
    Row sum(static_cast<size_t>(width));
    std::vector<double> terms(slopes.size());
    double z_total = 0;
    int64_t counted = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      if (is_padding(experts, t, k)) continue;
      ++counted;
      Row at = row(z, t, width);
      std::fill(sum.begin(), sum.end(), 0.0);
      router.weights_backward(at, experts.data() + t * k, dw.data() + t * k, sum);
      add_balance(router, at, t, sum, terms, z_total);
      std::copy(sum.begin(), sum.end(), dz.begin() + t * width);
    }
    if (record) note(terms, z_total, counted, width);
    if (g[0].wanted()) g[0].give(ctx, from_host_values(ctx, dz, logits));
  }

  void add_balance(TokenRouter& router, const Row& z, int64_t t, Row& dz,
                   std::vector<double>& terms, double& z_total) {
    auto weight = static_cast<double>(token_weight);
    Row scaled(z.size());
    for (size_t i = 0; i < slopes.size(); ++i) {
      bool per_sequence = slopes[i].over == BalanceTerm::Over::sequence;
      size_t group = per_sequence ? static_cast<size_t>(sequence_of[static_cast<size_t>(t)]) : 0;
      const double* c = slopes[i].c.data() + group * z.size();
      const Row& p = router.shares(z);
      for (size_t e = 0; e < z.size(); ++e) {
        terms[i] += c[e] * p[e];
        scaled[e] = c[e] * weight;
      }
      router.shares_backward(z, scaled, dz);
    }
    if (z_coefficient == 0) return;
    double lse = log_sum_exp(z);
    z_total += z_coefficient * lse * lse;
    for (size_t e = 0; e < z.size(); ++e)
      dz[e] += weight * z_coefficient * 2 * lse * std::exp(z[e] - lse);
  }

  void note(const std::vector<double>& terms, double z_total, int64_t tokens, int64_t width) const {
    record->choices.resize(static_cast<size_t>(width));
    record->terms.resize(terms.size());
    for (int32_t e : experts)
      if (e >= 0) ++record->choices[static_cast<size_t>(e)];
    for (size_t i = 0; i < terms.size(); ++i) record->terms[i] += terms[i];
    record->z += z_total;
    record->tokens += tokens;
  }
};

/// Counts selections and tokens over the micro-batch or each sequence, on all ranks that share
/// them.
class Counter {
 public:
  Counter(int64_t groups, int64_t width)
      : width_(width), counts_(static_cast<size_t>(groups * (width + 1))) {}
  void add(int64_t group, const int32_t* chosen, int64_t k) {
    int64_t* at = counts_.data() + group * (width_ + 1);
    for (int64_t j = 0; j < k; ++j) ++at[chosen[j]];
    ++at[width_];
  }
  std::span<int64_t> all() { return counts_; }
  Slopes slopes(BalanceTerm::Over over, double coefficient, int64_t k) const {
    Slopes out{over, {}};
    for (size_t i = 0; i < counts_.size(); i += static_cast<size_t>(width_) + 1) {
      auto tokens =
          static_cast<double>(std::max<int64_t>(1, counts_[i + static_cast<size_t>(width_)]));
      for (size_t e = 0; e < static_cast<size_t>(width_); ++e)
        out.c.push_back(coefficient * static_cast<double>(width_) *
                        static_cast<double>(counts_[i + e]) / (static_cast<double>(k) * tokens));
    }
    return out;
  }

 private:
  int64_t width_;
  std::vector<int64_t> counts_;
};

bool padded(std::span<const int32_t> padding, int64_t t) {
  return !padding.empty() && padding[static_cast<size_t>(t)] != 0;
}

Slopes given_slopes(const BalanceTerm& term) {
  Slopes out{term.over, {}};
  for (float f : term.load) out.c.push_back(term.coefficient * static_cast<double>(f));
  return out;
}

/// Balancing losses count the selection without bias and groups (DeepSeek-AI 2024, eq. 18).
std::vector<Slopes> balance_slopes(const Row& logits, int64_t tokens, int64_t width,
                                   const RouterRule& rule, const RouterBalance& b) {
  std::vector<Slopes> out;
  auto any = [&](BalanceTerm::Over over) {
    return std::any_of(b.terms.begin(), b.terms.end(),
                       [&](const BalanceTerm& t) { return t.over == over; });
  };
  bool whole = any(BalanceTerm::Over::micro_batch), by_sequence = any(BalanceTerm::Over::sequence);
  Counter batch(1, width), sequences(by_sequence ? b.sequences : 0, width);
  TokenRouter router(rule, width);
  std::vector<int32_t> chosen(static_cast<size_t>(rule.top_k));
  for (int64_t t = 0; (whole || by_sequence) && t < tokens; ++t) {
    if (padded(b.padding, t)) continue;
    router.choose_experts(Row(logits.begin() + t * width, logits.begin() + (t + 1) * width), {},
                          false, chosen.data());
    batch.add(0, chosen.data(), rule.top_k);
    if (by_sequence)
      sequences.add(b.sequence_of[static_cast<size_t>(t)], chosen.data(), rule.top_k);
  }
  if (b.all_reduce_sum && whole) b.all_reduce_sum(batch.all());
  if (b.all_reduce_sum && by_sequence) b.all_reduce_sum(sequences.all());
  for (const BalanceTerm& term : b.terms) {
    if (term.over == BalanceTerm::Over::given)
      out.push_back(given_slopes(term));
    else
      out.push_back((term.over == BalanceTerm::Over::sequence ? sequences : batch)
                        .slopes(term.over, term.coefficient, rule.top_k));
  }
  return out;
}

std::vector<int32_t> choices(ExecutionContext& ctx, const Row& logits, int64_t tokens,
                             int64_t width, const RouterRule& rule, const RouterBalance& b) {
  std::vector<int32_t> out(static_cast<size_t>(tokens * rule.top_k), -1);
  if (!ctx.backend().computes()) {  // dry run: assume equal load
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>(static_cast<int64_t>(i) % width);
    return out;
  }
  TokenRouter router(rule, width);
  for (int64_t t = 0; t < tokens; ++t) {
    if (padded(b.padding, t)) continue;
    int32_t* const chosen = out.data() + t * rule.top_k;
    if (!b.selection_scores.empty())
      router.choose_by(
          b.selection_scores.subspan(static_cast<size_t>(t * width), static_cast<size_t>(width)),
          chosen);
    else
      router.choose_experts(Row(logits.begin() + t * width, logits.begin() + (t + 1) * width),
                            b.bias, true, chosen);
  }
  return out;
}

}  // namespace

std::vector<double> host_values(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.numel()));
  if (t.dtype() == DType::f64) {
    t.context().download(t, out.data());
    return out;
  }
  MT_CHECK(t.dtype() == DType::f32, name(t.dtype()));
  std::vector<float> values(out.size());
  t.context().download(t, values.data());
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

Routed route(const Tensor& logits, const RouterRule& rule, const RouterBalance& balance,
             RouterRecord* record) {
  MT_CHECK(logits.shape().rank() == 2 && logits.contiguous() &&
               (logits.dtype() == DType::f32 || logits.dtype() == DType::f64),
           logits.shape(), " ", name(logits.dtype()));
  int64_t tokens = logits.size(0), width = logits.size(1);
  MT_CHECK(rule.top_k >= 1 && rule.top_k <= width, rule.top_k, " of ", width, " experts");
  MT_CHECK(rule.normalizes() || rule.score != Score::softmax || rule.pre_softmax,
           "softmax over the selected experts is normalized");
  MT_CHECK(balance.bias.empty() || static_cast<int64_t>(balance.bias.size()) == width,
           balance.bias.size(), " biases");
  MT_CHECK(balance.padding.empty() || static_cast<int64_t>(balance.padding.size()) == tokens,
           balance.padding.size(), " marks of padding for ", tokens, " tokens");
  MT_CHECK(balance.selection_scores.empty() ||
               static_cast<int64_t>(balance.selection_scores.size()) == tokens * width,
           balance.selection_scores.size(), " selection scores");
  MT_CHECK(balance.selection_scores.empty() || (balance.bias.empty() && rule.groups == 0),
           "selection scores with a bias or groups");
  for (const BalanceTerm& term : balance.terms)
    MT_CHECK(
        term.over != BalanceTerm::Over::given || static_cast<int64_t>(term.load.size()) == width,
        term.load.size(), " loads");
  bool balanced = !balance.terms.empty() || balance.z_coefficient != 0;
  MT_CHECK(!balanced || !logits.context().grad_enabled || balance.token_weight != 0,
           "the losses of the router need the weight of each token: set ModelInput::loss_weight");
  ExecutionContext& ctx = logits.context();
  const Row host = host_values(logits);
  Route op{.rule = rule,
           .record = record,
           .z_coefficient = balance.z_coefficient,
           .token_weight = balance.token_weight};
  op.experts = choices(ctx, host, tokens, width, rule, balance);
  if (ctx.grad_enabled && ctx.backend().computes())
    op.slopes = balance_slopes(host, tokens, width, rule, balance);
  op.sequence_of.assign(balance.sequence_of.begin(), balance.sequence_of.end());
  std::vector<int32_t> experts = op.experts;
  return {apply(std::move(op), logits), std::move(experts)};
}

}  // namespace mtrain
