// Attention of queries to keys of other tensors, with a bias by distance.
#include "mtrain/autograd/span_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

struct SpanRow {
  int64_t heads, dim;
  std::vector<AttentionSpan> spans;
  int64_t queries, keys;  // rows
};

/// Queries and keys of equal sequences, one after the other.
SpanRow own(int64_t heads, int64_t dim, const std::vector<int32_t>& lengths) {
  SpanRow row{heads, dim, {}, 0, 0};
  for (int32_t n : lengths) {
    const auto at = static_cast<int32_t>(row.queries);
    row.spans.push_back({.first_query = at, .queries = n, .first_key = at, .keys = n});
    row.queries += n;
  }
  row.keys = row.queries;
  return row;
}

const std::vector<SpanRow> kSpanRows = {
    own(1, 1, {1}),
    own(2, 6, {17, 1, 33}),
    own(1, 16, {129}),
    own(4, 8, {65, 64, 3}),
    own(3, 33, {70, 130}),
    {2, 10, {{0, 5, 0, 9}, {5, 33, 9, 70}}, 38, 79},      // more keys
    {2, 16, {{0, 70, 3, 9}, {70, 1, 20, 130}}, 71, 150},  // fewer, and keys that nobody attends to
    {1, 64, {{0, 66, 0, 129, 63}}, 66, 129},              // the last queries of a sequence
};

/// Everything that the definition needs besides the values.
struct SpanProblem {
  SpanRow row;
  bool causal, biased;
  double scale;
  int64_t zero = 0, distances = 0;

  size_t at(int64_t r, int64_t h, int64_t e) const {
    return static_cast<size_t>((r * row.heads + h) * row.dim + e);
  }
  size_t place(const AttentionSpan& s, int64_t h, int64_t i, int64_t j) const {
    return static_cast<size_t>(h * distances + zero + j - i - s.offset);
  }
  int64_t seen(const AttentionSpan& s, int64_t i) const {
    return causal ? std::min<int64_t>(s.keys, i + s.offset + 1) : s.keys;
  }
  /// Calls f(span, head, query, probabilities of its keys).
  template <class F>
  void each(const std::vector<Values>& v, const F& f) const {
    for (const AttentionSpan& s : row.spans)
      for (int64_t h = 0; h < row.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i) {
          Values p;
          double top = -1e300, sum = 0;
          for (int64_t j = 0; j < seen(s, i); ++j) {
            double score = 0;
            for (int64_t e = 0; e < row.dim; ++e)
              score += v[0][at(s.first_query + i, h, e)] * v[1][at(s.first_key + j, h, e)];
            p.push_back(score * scale + (biased ? v[3][place(s, h, i, j)] : 0));
            top = std::max(top, p.back());
          }
          for (double& x : p) sum += x = std::exp(x - top);
          for (double& x : p) x /= sum;
          f(s, h, i, p);
        }
  }
  Values forward(const std::vector<Values>& v) const {
    Values out(v[0].size(), 0.0);
    each(v, [&](const AttentionSpan& s, int64_t h, int64_t i, const Values& p) {
      for (size_t j = 0; j < p.size(); ++j)
        for (int64_t e = 0; e < row.dim; ++e)
          out[at(s.first_query + i, h, e)] +=
              p[j] * v[2][at(s.first_key + static_cast<int64_t>(j), h, e)];
    });
    return out;
  }
  std::vector<Values> backward(const std::vector<Values>& v, const Values& dy) const {
    std::vector<Values> g;
    for (const Values& x : v) g.emplace_back(x.size(), 0.0);
    each(v, [&](const AttentionSpan& s, int64_t h, int64_t i, const Values& p) {
      const int64_t query = s.first_query + i;
      Values dp(p.size(), 0.0);
      double mean = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        const int64_t key = s.first_key + static_cast<int64_t>(j);
        for (int64_t e = 0; e < row.dim; ++e) {
          dp[j] += dy[at(query, h, e)] * v[2][at(key, h, e)];
          g[2][at(key, h, e)] += p[j] * dy[at(query, h, e)];
        }
        mean += p[j] * dp[j];
      }
      for (size_t j = 0; j < p.size(); ++j) {
        const int64_t key = s.first_key + static_cast<int64_t>(j);
        const double slope = p[j] * (dp[j] - mean);
        if (biased) g[3][place(s, h, i, static_cast<int64_t>(j))] += slope;
        for (int64_t e = 0; e < row.dim; ++e) {
          g[0][at(query, h, e)] += slope * scale * v[1][at(key, h, e)];
          g[1][at(key, h, e)] += slope * scale * v[0][at(query, h, e)];
        }
      }
    });
    return g;
  }
};

Case span_case(const SpanRow& row, bool causal, bool biased, float scale) {
  SpanProblem problem{row, causal, biased, static_cast<double>(scale)};
  int64_t last = 0;
  for (const AttentionSpan& s : row.spans) {
    problem.zero = std::max<int64_t>(problem.zero, s.queries - 1 + s.offset);
    last = std::max<int64_t>(last, s.keys - 1 - s.offset);
  }
  problem.distances = problem.zero + 1 + (causal ? 0 : std::max<int64_t>(0, last));
  const Shape q = {row.queries, row.heads * row.dim}, k = {row.keys, row.heads * row.dim},
              table = {row.heads, problem.distances};
  Case c{.name =
             cat("span attention ", causal ? "causal " : "", biased ? "biased " : "", row.heads,
                 " x ", row.dim, ", ", row.queries, " queries, ", row.keys, " keys, scale ", scale),
         .out = q};
  c.inputs = {{"q", q, random_values(q.numel(), "q")},
              {"k", k, random_values(k.numel(), "k")},
              {"v", k, random_values(k.numel(), "v")}};
  if (biased) c.inputs.push_back({"bias", table, random_values(table.numel(), "bias")});
  auto spans = std::make_shared<const std::vector<AttentionSpan>>(row.spans);
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return span_attention(t[0], t[1], t[2], row.heads, spans, {.scale = scale, .causal = causal},
                          {biased ? t[3] : Tensor(), problem.zero});
  };
  c.forward = [=](const std::vector<Values>& v) { return problem.forward(v); };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    return problem.backward(v, dy);
  };
  // Backward starts from the output as it was rounded; each pair of a distance brings a rounding.
  c.bound = {.inner = 4, .sums = 64};
  return c;
}

TEST_CASE("span_attention: values and gradients, with and without a bias by distance") {
  Figures figures("span attention");
  for (const SpanRow& row : kSpanRows)
    for (bool biased : {true, false})
      for (bool causal : {true, false}) check(span_case(row, causal, biased, 0.3f), figures);
  check(span_case(kSpanRows[1], true, true, 1), figures);
}

TEST_CASE("span_attention: spans without bias are attention on a fused projection, bit for bit") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const int64_t heads = 2, dim = 16, tokens = 97;
  const SpanRow row = own(heads, dim, {70, 27});
  Values fused = random_values(tokens * 3 * heads * dim, "qkv");
  std::array<Values, 3> apart;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (size_t part = 0; part < 3; ++part)
        for (int64_t e = 0; e < dim; ++e)
          apart[part].push_back(fused[static_cast<size_t>((t * heads + h) * 3 * dim +
                                                          static_cast<int64_t>(part) * dim + e)]);
  auto bounds = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 70, 97});
  auto spans = std::make_shared<const std::vector<AttentionSpan>>(row.spans);
  for (DType dtype : kDTypes)
    for (bool causal : {true, false}) {
      const AttentionScores scores{.scale = 0.25f, .causal = causal};
      const Shape shape = {tokens, heads * dim};
      std::vector<Tensor> parts;
      for (const Values& values : apart) parts.push_back(make(ctx, values, shape, dtype));
      CHECK(values_of(span_attention(parts[0], parts[1], parts[2], heads, spans, scores)) ==
            values_of(attention(make(ctx, fused, {tokens, 3 * heads * dim}, dtype),
                                {heads, heads, dim}, bounds, scores)));
    }
}

TEST_CASE("span_attention: spans and biases that do not fit the rows are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor q = ctx.zeros({4, 8}, DType::f32), k = ctx.zeros({6, 8}, DType::f32),
         bias = ctx.zeros({2, 9}, DType::f32);
  auto call = [&](std::vector<AttentionSpan> spans, const DistanceBias& by = {}) {
    return span_attention(q, k, k, 2,
                          std::make_shared<const std::vector<AttentionSpan>>(std::move(spans)),
                          {.scale = 1, .causal = false}, by);
  };
  call({{0, 4, 0, 6}}, {bias, 3});
  CHECK_THROWS_AS(call({{0, 3, 0, 6}}), Error);
  CHECK_THROWS_AS(call({{0, 4, 0, 7}}), Error);
  CHECK_THROWS_AS(call({{0, 4, 0, 0}}), Error);
  CHECK_THROWS_AS(call({{0, 4, 0, 6}}, {bias, 2}), Error);
  CHECK_THROWS_AS(call({{0, 4, 0, 6}}, {bias, 4}), Error);
  CHECK_THROWS_AS(call({{0, 4, 0, 6}}, {ctx.zeros({1, 9}, DType::f32), 3}), Error);
}

}  // namespace
}  // namespace mtrain::contract
