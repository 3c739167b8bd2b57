// Attention by its definition, in double, over a fused buffer with padding between groups and rows.
#pragma once
#include <limits>

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

/// One row per token: for each group its query heads, its key and its value, then `kPad` unused
/// elements.
template <class T>
struct AttentionData {
  static constexpr int64_t kPad = 3;
  static constexpr double kUntouched = 77;
  AttentionCase shape;
  bool causal;
  int64_t tokens, per_group, group_stride, row_stride;
  Buffer<T> qkv, o;
  Buffer<float> lse;
  float scale;

  AttentionData(AttentionCase c, bool is_causal)
      : shape(std::move(c)),
        causal(is_causal),
        tokens(shape.cu_seqlens.back()),
        per_group(shape.heads / shape.groups),
        group_stride((per_group + 2) * shape.head_dim + kPad),
        row_stride(shape.groups * group_stride + kPad),
        qkv(Buffer<T>::random(tokens * row_stride, "qkv")),
        o(tokens * shape.heads * shape.head_dim, kUntouched),
        lse(tokens * shape.heads, kUntouched),
        scale(1 / std::sqrt(static_cast<float>(shape.head_dim))) {}

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
    return a;
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
  std::vector<double> o, lse, d_qkv;  // d_qkv is NaN where nothing is to be written
};

/// Calls f(sequence's end, head, token, probabilities from the sequence's start on).
template <class T, class F>
void each_attention_row(const AttentionData<T>& d, F&& f) {
  for (size_t s = 0; s + 1 < d.shape.cu_seqlens.size(); ++s)
    for (int64_t h = 0; h < d.shape.heads; ++h)
      for (int64_t t0 = d.shape.cu_seqlens[s], t = t0; t < d.shape.cu_seqlens[s + 1]; ++t) {
        int64_t end = d.causal ? t + 1 : d.shape.cu_seqlens[s + 1], g = h / d.per_group;
        std::vector<double> p;
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t u = t0; u < end; ++u) {
          double score = 0;
          for (int64_t e = 0; e < d.shape.head_dim; ++e)
            score += d.qkv[d.index_q(t, h, e)] * d.qkv[d.index_k(u, g, e)];
          p.push_back(static_cast<double>(d.scale) * score);
          top = std::max(top, p.back());
        }
        for (double& v : p) sum += v = std::exp(v - top);
        for (double& v : p) v /= sum;
        f(t0, h, t, p, top + std::log(sum));
      }
}

template <class T>
AttentionWant reference_attention(const AttentionData<T>& d) {
  AttentionWant want;
  want.o.assign(static_cast<size_t>(d.o.count()), 0);
  want.lse.assign(static_cast<size_t>(d.lse.count()), 0);
  each_attention_row(
      d, [&](int64_t t0, int64_t h, int64_t t, const std::vector<double>& p, double lse) {
        want.lse[static_cast<size_t>(h * d.tokens + t)] = lse;
        for (int64_t e = 0; e < d.shape.head_dim; ++e)
          for (size_t u = 0; u < p.size(); ++u)
            want.o[static_cast<size_t>((t * d.shape.heads + h) * d.shape.head_dim + e)] +=
                p[u] * d.qkv[d.index_v(t0 + static_cast<int64_t>(u), h / d.per_group, e)];
      });
  return want;
}

template <class T>
AttentionWant reference_attention_backward(const AttentionData<T>& d, const Buffer<T>& d_o) {
  AttentionWant want = reference_attention(d);
  want.d_qkv.assign(static_cast<size_t>(d.qkv.count()), std::nan(""));
  auto at = [&](int64_t i) -> double& { return want.d_qkv[static_cast<size_t>(i)]; };
  int64_t dim = d.shape.head_dim;
  for (int64_t t = 0; t < d.tokens; ++t)
    for (int64_t e = 0; e < dim; ++e) {
      for (int64_t h = 0; h < d.shape.heads; ++h) at(d.index_q(t, h, e)) = 0;
      for (int64_t g = 0; g < d.shape.groups; ++g)
        at(d.index_k(t, g, e)) = at(d.index_v(t, g, e)) = 0;
    }
  each_attention_row(
      d, [&](int64_t t0, int64_t h, int64_t t, const std::vector<double>& p, double) {
        int64_t g = h / d.per_group, row = (t * d.shape.heads + h) * dim;
        double delta = 0;
        std::vector<double> dp(p.size());
        for (size_t u = 0; u < p.size(); ++u) {
          for (int64_t e = 0; e < dim; ++e)
            dp[u] += d_o[row + e] * d.qkv[d.index_v(t0 + static_cast<int64_t>(u), g, e)];
          delta += p[u] * dp[u];
        }
        for (size_t u = 0; u < p.size(); ++u) {
          double ds = static_cast<double>(d.scale) * p[u] * (dp[u] - delta);
          int64_t other = t0 + static_cast<int64_t>(u);
          for (int64_t e = 0; e < dim; ++e) {
            at(d.index_q(t, h, e)) += ds * d.qkv[d.index_k(other, g, e)];
            at(d.index_k(other, g, e)) += ds * d.qkv[d.index_q(t, h, e)];
            at(d.index_v(other, g, e)) += p[u] * d_o[row + e];
          }
        }
      });
  return want;
}

}  // namespace mtrain::testing
