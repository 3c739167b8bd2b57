// The ops of mtrain/autograd/ops.h written out in double on the host, each with its derivative: the
// definition that every backend and dtype is compared with. Nothing here is shared with the
// kernels; harness.cc checks the derivatives by finite differences. Matrices are row-major.
// Stateless.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace mtrain::reference {

using Values = std::vector<double>;

/// y[T,N] = x[T,D] w[N,D]ᵀ + b[N]; `b` may be empty.
Values linear(const Values& x, const Values& w, const Values& b, int64_t tokens, int64_t in,
              int64_t out);
/// {dx, dw, db}
std::vector<Values> linear_backward(const Values& dy, const Values& x, const Values& w,
                                    int64_t tokens, int64_t in, int64_t out);

Values rms_norm(const Values& x, const Values& w, int64_t rows, int64_t cols, double eps);
/// {dx, dw}
std::vector<Values> rms_norm_backward(const Values& dy, const Values& x, const Values& w,
                                      int64_t rows, int64_t cols, double eps);
/// `b` may be empty.
Values layer_norm(const Values& x, const Values& w, const Values& b, int64_t rows, int64_t cols,
                  double eps);
/// {dx, dw, db}
std::vector<Values> layer_norm_backward(const Values& dy, const Values& x, const Values& w,
                                        int64_t rows, int64_t cols, double eps);

Values embedding(const Values& table, const std::vector<int32_t>& ids, int64_t cols);
Values embedding_backward(const Values& dy, const std::vector<int32_t>& ids, int64_t rows,
                          int64_t cols);

Values add(const Values& a, const Values& b);
Values mul(const Values& a, const Values& b);
Values silu_mul(const Values& gate, const Values& up);
/// {d_gate, d_up}
std::vector<Values> silu_mul_backward(const Values& dy, const Values& gate, const Values& up);
Values gelu(const Values& x, bool tanh_form);
Values gelu_backward(const Values& dy, const Values& x, bool tanh_form);

/// max(x, 0), or its square.
Values relu(const Values& x, bool squared);
Values relu_backward(const Values& dy, const Values& x, bool squared);

/// scale * x, or cap * tanh(scale * x / cap) where cap is not 0.
Values map_logits(const Values& x, double scale, double cap);
Values map_logits_backward(const Values& dy, const Values& x, double scale, double cap);

/// The layout of heads in a fused projection: group by group, its queries, its key, its value.
struct Heads {
  int64_t heads, groups, head_dim;
  int64_t queries() const { return heads / groups; }
  int64_t width() const { return groups * (queries() + 2) * head_dim; }
  /// Index of element 0 of slot `slot` (queries, then key, then value) of a group, in token t's
  /// row.
  int64_t at(int64_t t, int64_t group, int64_t slot) const {
    return t * width() + (group * (queries() + 2) + slot) * head_dim;
  }
};

/// Queries and keys rotated by cos/sin[position, rotary_dim/2] in pairs (i, i + rotary_dim/2), or
/// (2i, 2i + 1) if `interleaved`; `sign` -1 rotates back, which is also the backward.
Values rope(const Values& qkv, const Heads& heads, int64_t rotary_dim, const Values& cos,
            const Values& sin, const std::vector<int32_t>& positions, double sign,
            bool interleaved = false);

/// AttentionScores in double, with the sinks and the masks of dropout.
struct Scores {
  double scale = 1;
  bool causal = true;
  int64_t window = 0;
  double cap = 0;
  Values sinks = {};  // by head; empty: none
  std::function<double(int64_t head, int64_t query, int64_t key)> keep =
      {};  // factor of a weight; empty: 1
};
/// [T, heads*head_dim]; sequence s holds tokens [bounds[s], bounds[s+1]).
Values attention(const Values& qkv, const Heads& heads, const std::vector<int32_t>& bounds,
                 const Scores& scores);
struct AttentionGradients {
  Values qkv, sinks;
};
AttentionGradients attention_backward(const Values& dy, const Values& qkv, const Heads& heads,
                                      const std::vector<int32_t>& bounds, const Scores& scores);

/// Loss per row; 0 where target < 0; columns from `valid` on do not exist.
Values cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t cols,
                     int64_t valid);
Values cross_entropy_backward(const Values& dy, const Values& logits,
                              const std::vector<int32_t>& targets, int64_t cols, int64_t valid);

}  // namespace mtrain::reference
