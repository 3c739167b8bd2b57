// Attention by its definition, in double, over a fused buffer with padding between groups and rows.
#pragma once
#include <algorithm>
#include <limits>
#include <map>

#include "kernel_harness.h"
#include "mtrain/base/text.h"

namespace mtrain::testing {

struct AttentionCase {
  std::vector<int32_t> cu_seqlens;
  int64_t heads, groups, head_dim;
  std::string text() const {
    return cat("tokens ", cu_seqlens.back(), " in ", cu_seqlens.size() - 1, ", heads ", heads, "/",
               groups, ", head dim ", head_dim);
  }
};

/// Settings of AttentionArgs beyond a causal mask.
struct AttentionVariation {
  int64_t window = 0;
  float cap = 0;
  bool sinks = false;
  float dropout = 0;
  std::string text() const {
    return cat(", window ", window, ", cap ", cap, sinks ? ", sinks" : "", ", dropout ", dropout);
  }
};

/// One row per token: for each group its query heads, its key and its value, then `kPad` unused
/// elements.
template <class T>
struct AttentionData {
  static constexpr int64_t kPad = 3;
  static constexpr double kUntouched = 77;
  AttentionCase shape;
  bool causal;
  AttentionVariation variation;
  int64_t tokens, per_group, group_stride, row_stride;
  Buffer<T> qkv, o, sinks;
  std::vector<int64_t> first_tokens;  // of the sequences, for dropout
  Buffer<float> lse;
  float scale;

  AttentionData(AttentionCase c, bool is_causal, AttentionVariation v = {})
      : shape(std::move(c)),
        causal(is_causal),
        variation(v),
        tokens(shape.cu_seqlens.back()),
        per_group(shape.heads / shape.groups),
        group_stride((per_group + 2) * shape.head_dim + kPad),
        row_stride(shape.groups * group_stride + kPad),
        qkv(Buffer<T>::random(tokens * row_stride, "qkv")),
        o(tokens * shape.heads * shape.head_dim, kUntouched),
        sinks(Buffer<T>::random(shape.heads, "sinks")),
        lse(tokens * shape.heads, kUntouched),
        scale(1 / std::sqrt(static_cast<float>(shape.head_dim))) {
    for (int32_t begin : shape.cu_seqlens) first_tokens.push_back(1000 + begin);
  }

  int64_t index_q(int64_t t, int64_t h, int64_t d) const {
    return t * row_stride + h / per_group * group_stride + h % per_group * shape.head_dim + d;
  }
  int64_t index_k(int64_t t, int64_t g, int64_t d) const {
    return t * row_stride + g * group_stride + per_group * shape.head_dim + d;
  }
  int64_t index_v(int64_t t, int64_t g, int64_t d) const {
    return index_k(t, g, d) + shape.head_dim;
  }

  HeadsView view(T* data, int64_t offset) const {
    return {data + offset, row_stride, group_stride};
  }
  AttentionArgs args() {
    AttentionArgs a{};
    a.q = view(qkv.data(), 0), a.k = view(qkv.data(), per_group * shape.head_dim);
    a.v = view(qkv.data(), (per_group + 1) * shape.head_dim);
    a.o = o.data(), a.lse = lse.data(), a.cu_seqlens = shape.cu_seqlens.data();
    a.sequences = static_cast<int64_t>(shape.cu_seqlens.size()) - 1, a.tokens = tokens,
    a.heads = shape.heads;
    a.groups = shape.groups, a.head_dim = shape.head_dim, a.scale = scale, a.causal = causal;
    a.dtype = DTypeOf<T>::value;
    a.window = variation.window, a.cap = variation.cap;
    if (variation.sinks) a.sinks = sinks.data();
    a.dropout = dropout();
    return a;
  }
  AttentionDropout dropout() const {
    if (variation.dropout == 0) return {};
    return {variation.dropout, 5, 6, 7, 2, first_tokens.data()};
  }
};

template <class T>
struct AttentionGrads {
  Buffer<T> d_o, d_qkv;
  explicit AttentionGrads(const AttentionData<T>& d)
      : d_o(Buffer<T>::random(d.o.count(), "d_o")), d_qkv(d.qkv.count(), d.kUntouched) {}
  AttentionBackwardArgs args(AttentionData<T>& d) {
    AttentionBackwardArgs a{};
    int64_t e = d.shape.head_dim;
    a.forward = d.args(), a.d_o = d_o.data();
    a.dq = d.view(d_qkv.data(), 0), a.dk = d.view(d_qkv.data(), d.per_group * e);
    a.dv = d.view(d_qkv.data(), (d.per_group + 1) * e);
    return a;
  }
};

struct AttentionWant {
  std::vector<double> o, lse, d_qkv, d_sinks;  // d_qkv is NaN where nothing is to be written
};

/// References by type and case: they are slow, and every level and thread count compares with the
/// same ones.
class AttentionWants {
 public:
  template <class T, class Make>
  const AttentionWant& get(const AttentionData<T>& d, Make&& make) {
    auto [at, is_new] = known_.try_emplace(
        cat(name(DTypeOf<T>::value), d.shape.text(), d.variation.text(), d.causal));
    if (is_new) at->second = make();
    return at->second;
  }

 private:
  std::map<std::string, AttentionWant> known_;
};

/// One query and its sequence's keys up to the last one that it attends to.
struct AttentionRow {
  int64_t first;  // the sequence's first token
  int64_t head, token;
  std::vector<double> p, slope, keep;  // probabilities, derivatives of the cap, factors of dropout
  double lse, sink_share;
};

/// The scores of a row's keys; -infinity for those before its window.
template <class T>
void score_row(const AttentionData<T>& d, int64_t end, AttentionRow& row) {
  const AttentionVariation& v = d.variation;
  int64_t from =
      v.window > 0 && d.causal ? std::max(row.first, row.token + 1 - v.window) : row.first;
  for (int64_t u = row.first; u < end; ++u) {
    double score = 0, slope = 1;
    for (int64_t e = 0; e < d.shape.head_dim; ++e)
      score +=
          d.qkv[d.index_q(row.token, row.head, e)] * d.qkv[d.index_k(u, row.head / d.per_group, e)];
    score *= static_cast<double>(d.scale);
    if (v.cap > 0) {
      double bent = std::tanh(score / static_cast<double>(v.cap));
      score = static_cast<double>(v.cap) * bent, slope = 1 - bent * bent;
    }
    row.p.push_back(u < from ? -std::numeric_limits<double>::infinity() : score);
    row.slope.push_back(slope);
    row.keep.push_back(
        v.dropout == 0
            ? 1
            : static_cast<double>(
                  AttentionKeep(d.dropout(), row.head).factor(1000 + row.token, 1000 + u)));
  }
}

/// Calls f(AttentionRow) for all queries and heads.
template <class T, class F>
void each_attention_row(const AttentionData<T>& d, F&& f) {
  for (size_t s = 0; s + 1 < d.shape.cu_seqlens.size(); ++s)
    for (int64_t h = 0; h < d.shape.heads; ++h)
      for (int64_t t0 = d.shape.cu_seqlens[s], t = t0; t < d.shape.cu_seqlens[s + 1]; ++t) {
        AttentionRow row{t0, h, t, {}, {}, {}, 0, 0};
        score_row(d, d.causal ? t + 1 : d.shape.cu_seqlens[s + 1], row);
        double sink = d.variation.sinks ? d.sinks[h] : -std::numeric_limits<double>::infinity();
        double top = std::max(sink, *std::max_element(row.p.begin(), row.p.end())),
               sum = std::exp(sink - top);
        for (double& v : row.p) sum += v = std::exp(v - top);
        for (double& v : row.p) v /= sum;
        row.lse = top + std::log(sum), row.sink_share = std::exp(sink - top) / sum;
        f(row);
      }
}

template <class T>
AttentionWant reference_attention(const AttentionData<T>& d) {
  AttentionWant want;
  want.o.assign(static_cast<size_t>(d.o.count()), 0);
  want.lse.assign(static_cast<size_t>(d.lse.count()), 0);
  each_attention_row(d, [&](const AttentionRow& row) {
    want.lse[static_cast<size_t>(row.head * d.tokens + row.token)] = row.lse;
    for (int64_t e = 0; e < d.shape.head_dim; ++e)
      for (size_t u = 0; u < row.p.size(); ++u)
        want.o[static_cast<size_t>((row.token * d.shape.heads + row.head) * d.shape.head_dim +
                                   e)] +=
            row.p[u] * row.keep[u] *
            d.qkv[d.index_v(row.first + static_cast<int64_t>(u), row.head / d.per_group, e)];
  });
  return want;
}

template <class T>
void add_row_gradients(const AttentionData<T>& d, const Buffer<T>& d_o, const AttentionRow& row,
                       AttentionWant& want) {
  auto at = [&](int64_t i) -> double& { return want.d_qkv[static_cast<size_t>(i)]; };
  int64_t dim = d.shape.head_dim, g = row.head / d.per_group, t = row.token,
          out = (t * d.shape.heads + row.head) * dim;
  double delta = 0;
  std::vector<double> dp(row.p.size());
  for (size_t u = 0; u < row.p.size(); ++u) {
    for (int64_t e = 0; e < dim; ++e)
      dp[u] += d_o[out + e] * d.qkv[d.index_v(row.first + static_cast<int64_t>(u), g, e)];
    dp[u] *= row.keep[u];
    delta += row.p[u] * dp[u];
  }
  want.d_sinks[static_cast<size_t>(row.head)] -= row.sink_share * delta;
  for (size_t u = 0; u < row.p.size(); ++u) {
    double ds = static_cast<double>(d.scale) * row.p[u] * (dp[u] - delta) * row.slope[u];
    int64_t other = row.first + static_cast<int64_t>(u);
    for (int64_t e = 0; e < dim; ++e) {
      at(d.index_q(t, row.head, e)) += ds * d.qkv[d.index_k(other, g, e)];
      at(d.index_k(other, g, e)) += ds * d.qkv[d.index_q(t, row.head, e)];
      at(d.index_v(other, g, e)) += row.p[u] * row.keep[u] * d_o[out + e];
    }
  }
}

template <class T>
AttentionWant reference_attention_backward(const AttentionData<T>& d, const Buffer<T>& d_o) {
  AttentionWant want = reference_attention(d);
  want.d_qkv.assign(static_cast<size_t>(d.qkv.count()), std::nan(""));
  want.d_sinks.assign(static_cast<size_t>(d.shape.heads), 0);
  auto at = [&](int64_t i) -> double& { return want.d_qkv[static_cast<size_t>(i)]; };
  for (int64_t t = 0; t < d.tokens; ++t)
    for (int64_t e = 0; e < d.shape.head_dim; ++e) {
      for (int64_t h = 0; h < d.shape.heads; ++h) at(d.index_q(t, h, e)) = 0;
      for (int64_t g = 0; g < d.shape.groups; ++g)
        at(d.index_k(t, g, e)) = at(d.index_v(t, g, e)) = 0;
    }
  each_attention_row(d, [&](const AttentionRow& row) { add_row_gradients(d, d_o, row, want); });
  return want;
}

}  // namespace mtrain::testing
