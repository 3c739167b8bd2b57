#include "reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mtrain::reference {
namespace {

size_t index(int64_t row, int64_t cols, int64_t col) {
  return static_cast<size_t>(row * cols + col);
}
Values zeros(int64_t count) { return Values(static_cast<size_t>(count), 0.0); }

}  // namespace

Values linear(const Values& x, const Values& w, const Values& b, int64_t tokens, int64_t in,
              int64_t out) {
  Values y = zeros(tokens * out);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < out; ++n) {
      double sum = b.empty() ? 0 : b[static_cast<size_t>(n)];
      for (int64_t d = 0; d < in; ++d) sum += x[index(t, in, d)] * w[index(n, in, d)];
      y[index(t, out, n)] = sum;
    }
  return y;
}

std::vector<Values> linear_backward(const Values& dy, const Values& x, const Values& w,
                                    int64_t tokens, int64_t in, int64_t out) {
  Values dx = zeros(tokens * in), dw = zeros(out * in), db = zeros(out);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < out; ++n) {
      double g = dy[index(t, out, n)];
      db[static_cast<size_t>(n)] += g;
      for (int64_t d = 0; d < in; ++d) {
        dx[index(t, in, d)] += g * w[index(n, in, d)];
        dw[index(n, in, d)] += g * x[index(t, in, d)];
      }
    }
  return {dx, dw, db};
}

Values rms_norm(const Values& x, const Values& w, int64_t rows, int64_t cols, double eps) {
  Values y = x;
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += x[index(r, cols, c)] * x[index(r, cols, c)];
    double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (int64_t c = 0; c < cols; ++c) y[index(r, cols, c)] *= rstd * w[static_cast<size_t>(c)];
  }
  return y;
}

std::vector<Values> rms_norm_backward(const Values& dy, const Values& x, const Values& w,
                                      int64_t rows, int64_t cols, double eps) {
  Values dx = zeros(rows * cols), dw = zeros(cols);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0, dot = 0;
    for (int64_t c = 0; c < cols; ++c) {
      size_t i = index(r, cols, c), j = static_cast<size_t>(c);
      squares += x[i] * x[i];
      dot += dy[i] * w[j] * x[i];
    }
    auto n = static_cast<double>(cols);
    double rstd = 1 / std::sqrt(squares / n + eps);
    for (int64_t c = 0; c < cols; ++c) {
      size_t i = index(r, cols, c), j = static_cast<size_t>(c);
      dx[i] = rstd * dy[i] * w[j] - rstd * rstd * rstd * x[i] * dot / n;
      dw[j] += dy[i] * x[i] * rstd;
    }
  }
  return {dx, dw};
}

Values layer_norm(const Values& x, const Values& w, const Values& b, int64_t rows, int64_t cols,
                  double eps) {
  Values y = zeros(rows * cols);
  auto n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; ++c) mean += x[index(r, cols, c)] / n;
    for (int64_t c = 0; c < cols; ++c) variance += std::pow(x[index(r, cols, c)] - mean, 2) / n;
    for (int64_t c = 0; c < cols; ++c) {
      size_t j = static_cast<size_t>(c);
      y[index(r, cols, c)] =
          (x[index(r, cols, c)] - mean) / std::sqrt(variance + eps) * w[j] + (b.empty() ? 0 : b[j]);
    }
  }
  return y;
}

std::vector<Values> layer_norm_backward(const Values& dy, const Values& x, const Values& w,
                                        int64_t rows, int64_t cols, double eps) {
  Values dx = zeros(rows * cols), dw = zeros(cols), db = zeros(cols);
  auto n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0, sum = 0, dot = 0;
    for (int64_t c = 0; c < cols; ++c) mean += x[index(r, cols, c)] / n;
    for (int64_t c = 0; c < cols; ++c) variance += std::pow(x[index(r, cols, c)] - mean, 2) / n;
    double rstd = 1 / std::sqrt(variance + eps);
    for (int64_t c = 0; c < cols; ++c) {
      size_t i = index(r, cols, c), j = static_cast<size_t>(c);
      double normal = (x[i] - mean) * rstd;
      dw[j] += dy[i] * normal;
      db[j] += dy[i];
      sum += dy[i] * w[j];
      dot += dy[i] * w[j] * normal;
    }
    for (int64_t c = 0; c < cols; ++c) {
      size_t i = index(r, cols, c), j = static_cast<size_t>(c);
      dx[i] = rstd * (dy[i] * w[j] - sum / n - (x[i] - mean) * rstd * dot / n);
    }
  }
  return {dx, dw, db};
}

Values embedding(const Values& table, const std::vector<int32_t>& ids, int64_t cols) {
  Values y;
  for (int32_t id : ids)
    for (int64_t c = 0; c < cols; ++c) y.push_back(table[index(id, cols, c)]);
  return y;
}

Values embedding_backward(const Values& dy, const std::vector<int32_t>& ids, int64_t rows,
                          int64_t cols) {
  Values d_table = zeros(rows * cols);
  for (size_t t = 0; t < ids.size(); ++t)
    for (int64_t c = 0; c < cols; ++c)
      d_table[index(ids[t], cols, c)] += dy[index(static_cast<int64_t>(t), cols, c)];
  return d_table;
}

Values add(const Values& a, const Values& b) {
  Values y = a;
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i];
  return y;
}

namespace {
double exact_sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
}  // namespace

Values mul(const Values& a, const Values& b) {
  Values y = a;
  for (size_t i = 0; i < y.size(); ++i) y[i] *= b[i];
  return y;
}

Values silu_mul(const Values& gate, const Values& up) {
  Values y = up;
  for (size_t i = 0; i < y.size(); ++i) y[i] *= gate[i] * exact_sigmoid(gate[i]);
  return y;
}

std::vector<Values> silu_mul_backward(const Values& dy, const Values& gate, const Values& up) {
  Values d_gate = dy, d_up = dy;
  for (size_t i = 0; i < dy.size(); ++i) {
    double s = exact_sigmoid(gate[i]);
    d_gate[i] *= up[i] * s * (1 + gate[i] * (1 - s));
    d_up[i] *= gate[i] * s;
  }
  return {d_gate, d_up};
}

namespace {
double gelu_inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
}  // namespace

Values gelu(const Values& x, bool tanh_form) {
  Values y = x;
  for (double& v : y)
    v *= 0.5 * (tanh_form ? 1 + std::tanh(gelu_inner(v)) : std::erfc(-v / std::numbers::sqrt2));
  return y;
}

Values gelu_backward(const Values& dy, const Values& x, bool tanh_form) {
  Values dx = dy;
  for (size_t i = 0; i < x.size(); ++i) {
    double v = x[i];
    if (tanh_form) {
      double t = std::tanh(gelu_inner(v)),
             slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * v * v);
      dx[i] *= 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope;
    } else {
      double density = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
      dx[i] *= 0.5 * std::erfc(-v / std::numbers::sqrt2) + v * density;
    }
  }
  return dx;
}

Values relu(const Values& x, bool squared) {
  Values y = x;
  for (double& v : y) v = v < 0 ? 0 : squared ? v * v : v;
  return y;
}

Values relu_backward(const Values& dy, const Values& x, bool squared) {
  Values dx = dy;
  for (size_t i = 0; i < x.size(); ++i) dx[i] *= x[i] <= 0 ? 0 : squared ? 2 * x[i] : 1;
  return dx;
}

Values map_logits(const Values& x, double scale, double cap) {
  Values y = x;
  for (double& v : y) v = cap == 0 ? scale * v : cap * std::tanh(scale * v / cap);
  return y;
}

Values map_logits_backward(const Values& dy, const Values& x, double scale, double cap) {
  Values dx = dy;
  for (size_t i = 0; i < x.size(); ++i)
    dx[i] *= cap == 0 ? scale : scale / std::pow(std::cosh(scale * x[i] / cap), 2);
  return dx;
}

Values rope(const Values& qkv, const Heads& heads, int64_t rotary_dim, const Values& cos,
            const Values& sin, const std::vector<int32_t>& positions, double sign,
            bool interleaved) {
  Values out = qkv;
  int64_t half = rotary_dim / 2;
  for (size_t t = 0; t < positions.size(); ++t)
    for (int64_t g = 0; g < heads.groups; ++g)
      for (int64_t slot = 0; slot <= heads.queries(); ++slot)
        for (int64_t i = 0; i < half; ++i) {
          auto first = static_cast<size_t>(heads.at(static_cast<int64_t>(t), g, slot) +
                                           (interleaved ? 2 * i : i));
          size_t second = first + (interleaved ? 1 : static_cast<size_t>(half)),
                 angle = index(positions[t], half, i);
          out[first] = qkv[first] * cos[angle] - sign * qkv[second] * sin[angle];
          out[second] = qkv[second] * cos[angle] + sign * qkv[first] * sin[angle];
        }
  return out;
}

namespace {

// One query over its sequence's keys: probabilities, 0 where masked, the cap's derivatives and the
// factors of dropout.
struct SoftmaxRow {
  Values p, slope, keep;
  double sink = 0;  // the share of the sink
};

SoftmaxRow row_of(const Values& qkv, const Heads& heads, int64_t t, int64_t lo, int64_t hi,
                  int64_t g, int64_t j, const Scores& scores) {
  auto n = static_cast<size_t>(hi - lo);
  int64_t head = g * heads.queries() + j, end = scores.causal ? t + 1 : hi,
          begin = scores.window > 0 ? std::max(lo, t + 1 - scores.window) : lo;
  SoftmaxRow row{Values(n, 0.0), Values(n, 1.0), Values(n, 1.0)};
  double sink = scores.sinks.empty() ? -INFINITY : scores.sinks[static_cast<size_t>(head)],
         top = sink, sum = 0;
  for (int64_t s = begin; s < end; ++s) {
    auto i = static_cast<size_t>(s - lo);
    double score = 0;
    for (int64_t e = 0; e < heads.head_dim; ++e)
      score += qkv[static_cast<size_t>(heads.at(t, g, j) + e)] *
               qkv[static_cast<size_t>(heads.at(s, g, heads.queries()) + e)];
    score *= scores.scale;
    if (scores.cap > 0) {
      double bent = std::tanh(score / scores.cap);
      score = scores.cap * bent, row.slope[i] = 1 - bent * bent;
    }
    if (scores.keep) row.keep[i] = scores.keep(head, t, s);
    row.p[i] = score;
    top = std::max(top, score);
  }
  for (int64_t s = begin; s < end; ++s) sum += std::exp(row.p[static_cast<size_t>(s - lo)] - top);
  sum += std::exp(sink - top);
  for (int64_t s = begin; s < end; ++s)
    row.p[static_cast<size_t>(s - lo)] = std::exp(row.p[static_cast<size_t>(s - lo)] - top) / sum;
  row.sink = std::exp(sink - top) / sum;
  return row;
}

// Calls visit(query token, first and end token of its sequence, group, query head of the group).
template <class Visit>
void each_query(const Heads& heads, const std::vector<int32_t>& bounds, Visit&& visit) {
  for (size_t s = 0; s + 1 < bounds.size(); ++s)
    for (int64_t t = bounds[s]; t < bounds[s + 1]; ++t)
      for (int64_t g = 0; g < heads.groups; ++g)
        for (int64_t j = 0; j < heads.queries(); ++j) visit(t, bounds[s], bounds[s + 1], g, j);
}

}  // namespace

Values attention(const Values& qkv, const Heads& heads, const std::vector<int32_t>& bounds,
                 const Scores& scores) {
  int64_t dim = heads.head_dim;
  Values out = zeros(bounds.back() * heads.heads * dim);
  each_query(heads, bounds, [&](int64_t t, int64_t lo, int64_t hi, int64_t g, int64_t j) {
    SoftmaxRow row = row_of(qkv, heads, t, lo, hi, g, j, scores);
    for (int64_t s = lo; s < hi; ++s)
      for (int64_t e = 0; e < dim; ++e)
        out[static_cast<size_t>((t * heads.heads + g * heads.queries() + j) * dim + e)] +=
            row.p[static_cast<size_t>(s - lo)] * row.keep[static_cast<size_t>(s - lo)] *
            qkv[static_cast<size_t>(heads.at(s, g, heads.queries() + 1) + e)];
  });
  return out;
}

AttentionGradients attention_backward(const Values& dy, const Values& qkv, const Heads& heads,
                                      const std::vector<int32_t>& bounds, const Scores& scores) {
  int64_t dim = heads.head_dim;
  Values d_qkv(qkv.size(), 0.0), d_sinks(scores.sinks.size(), 0.0);
  each_query(heads, bounds, [&](int64_t t, int64_t lo, int64_t hi, int64_t g, int64_t j) {
    SoftmaxRow row = row_of(qkv, heads, t, lo, hi, g, j, scores);
    Values dp(row.p.size(), 0.0);
    auto at = [&](int64_t token, int64_t slot, int64_t e) {
      return static_cast<size_t>(heads.at(token, g, slot) + e);
    };
    auto d_o = [&](int64_t e) {
      return dy[static_cast<size_t>((t * heads.heads + g * heads.queries() + j) * dim + e)];
    };
    int64_t k = heads.queries(), v = k + 1;
    double mean = 0;
    for (int64_t s = lo; s < hi; ++s) {
      auto i = static_cast<size_t>(s - lo);
      for (int64_t e = 0; e < dim; ++e) {
        dp[i] += row.keep[i] * d_o(e) * qkv[at(s, v, e)];
        d_qkv[at(s, v, e)] += row.p[i] * row.keep[i] * d_o(e);
      }
      mean += row.p[i] * dp[i];
    }
    if (!d_sinks.empty()) d_sinks[static_cast<size_t>(g * heads.queries() + j)] -= row.sink * mean;
    for (int64_t s = lo; s < hi; ++s) {
      auto i = static_cast<size_t>(s - lo);
      double d_score = row.p[i] * (dp[i] - mean) * row.slope[i] * scores.scale;
      for (int64_t e = 0; e < dim; ++e) {
        d_qkv[at(t, j, e)] += d_score * qkv[at(s, k, e)];
        d_qkv[at(s, k, e)] += d_score * qkv[at(t, j, e)];
      }
    }
  });
  return {d_qkv, d_sinks};
}

Values cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t cols,
                     int64_t valid) {
  Values loss(targets.size(), 0.0);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    const double* row = logits.data() + index(static_cast<int64_t>(t), cols, 0);
    double top = *std::max_element(row, row + valid), sum = 0;
    for (int64_t c = 0; c < valid; ++c) sum += std::exp(row[c] - top);
    loss[t] = top + std::log(sum) - row[targets[t]];
  }
  return loss;
}

Values cross_entropy_backward(const Values& dy, const Values& logits,
                              const std::vector<int32_t>& targets, int64_t cols, int64_t valid) {
  Values d(logits.size(), 0.0);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    const double* row = logits.data() + index(static_cast<int64_t>(t), cols, 0);
    double top = *std::max_element(row, row + valid), sum = 0;
    for (int64_t c = 0; c < valid; ++c) sum += std::exp(row[c] - top);
    for (int64_t c = 0; c < valid; ++c)
      d[index(static_cast<int64_t>(t), cols, c)] =
          dy[t] * (std::exp(row[c] - top) / sum - (c == targets[t] ? 1 : 0));
  }
  return d;
}

}  // namespace mtrain::reference
