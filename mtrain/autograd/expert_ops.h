// Differentiable ops of mixtures of experts: the router, dispatch of tokens to rows of experts and
// back, and matrix products with one matrix per expert. The host selects the experts, because it
// needs the numbers of rows anyway. Dimensions: T tokens, E experts, K experts per token, D width,
// N outputs, R rows (one per pair of a token and one of its experts). For the rank's own thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// logits[T,E] = x[T,D] · w[E,D]ᵀ + b[E], for any dtype of x. `computed`: f32, bf16 (not for x in
/// fp16) or f64. The operands of this product and of those that give its gradients are converted to
/// it, and the logits are rounded to it. The returned logits and their gradients are f64 if it is
/// f64, otherwise f32. `b` may be undefined.
MT_API Tensor router_logits(const Tensor& x_TD, const Tensor& w_ED, const Tensor& b_E = {},
                            DType computed = DType::f32);

/// y = x · f while training, where each element's factor f is drawn uniformly from 1 - eps to
/// 1 + eps (Fedus et al. 2022, arXiv:2101.03961), as one of 2^kUniformBits (noise_ops.h) equally
/// spaced values. The draw depends only on seed, name, step and global token index, as that of
/// dropout(). The product is rounded once.
MT_API Tensor jitter(const Tensor& x_TD, float eps, uint64_t name_key);

/// How logits become a selection of top_k experts and their weights: w_j = scaling · s_j / Σ s over
/// the selected experts, where s is the score. Without the division by Σ s: with pre_softmax, and
/// for a sigmoid or sqrt_softplus score with top_k = 1.
struct RouterRule {
  enum class Score : uint8_t { softmax, sigmoid, sqrt_softplus } score = Score::softmax;
  int64_t top_k = 2;
  bool pre_softmax = false;  // softmax over all experts instead of over the selected ones
  double scaling = 1;        // factor of the weights
  int64_t groups = 0;  // > 0: the experts form this number of equal groups, and only experts of
                       // `group_top_k` groups can be selected. A group is ranked by the sum of its
                       // `group_best` best scores (DeepSeek-AI 2024, arXiv:2412.19437, 2.1.2)
  int64_t group_top_k = 0;        // number of selected groups
  int64_t group_best = 0;         // 0: max(1, top_k / group_top_k)
  std::optional<bool> normalize;  // the division by Σ s; absent: the default described above.
                                  // Must not be false for softmax over the selected experts, which
                                  // is always normalized

  bool normalizes() const {
    return normalize.value_or(score == Score::softmax ? !pre_softmax : top_k > 1);
  }
};

/// An auxiliary loss for balanced load: coefficient · Σ_e f_e · P_e, where f_e is E times the
/// fraction of selections that go to expert e, and P_e is the mean of its scores, which are scaled
/// to a sum of 1 per token (Fedus et al. 2022, arXiv:2101.03961, eq. 4). Both are over the tokens
/// of the micro-batch or, with `sequence`, of each sequence. f counts the selection without bias
/// and groups (DeepSeek-AI 2024, arXiv:2412.19437, eq. 18).
struct BalanceTerm {
  enum class Over : uint8_t { micro_batch, sequence, given } over = Over::micro_batch;
  double coefficient = 0;
  std::span<const float>
      load;  // given: f of each expert, from another source; read only in forward
};

/// Everything that balances a router. `all_reduce_sum` sums its argument, in place, over all ranks
/// between which the tokens of the micro-batch are sharded; empty: one rank. The losses enter the
/// gradient of the logits with `token_weight` per token, like each token's own loss.
struct RouterBalance {
  std::vector<BalanceTerm> terms;
  double z_coefficient =
      0;  // weight of mean (log sum exp logits)² (Zoph et al. 2022, arXiv:2202.08906, eq. 5)
  std::span<const float>
      bias;  // [E], added for the selection only (Wang et al. 2024, arXiv:2408.15664); may be empty
  std::span<const int32_t>
      sequence_of;  // [T], the sequence of each token, for terms over sequences
  int64_t sequences = 0;
  std::span<const double>
      selection_scores;  // [T,E]: replaces the scores when experts are selected; read only in
                         // forward; empty: the scores are used
  std::span<const int32_t> padding;  // [T], not 0: the position is padding; empty: none
  std::function<void(std::span<int64_t>)> all_reduce_sum;
  float token_weight = 0;
};

/// Statistics of routers since the last reset. Backward fills them, so recomputed forwards count
/// once.
struct RouterRecord {
  std::vector<int64_t> choices;  // [E], how often each expert was selected
  std::vector<double> terms;     // each term with its coefficient, summed over this rank's tokens
  double z = 0;                  // the same for the z loss
  int64_t tokens = 0;            // without padding
};

struct Routed {
  Tensor weights_TK;  // float, differentiable
  /// [T*K], the selection of each token in descending order of score; -1 for padding
  std::vector<int32_t> experts;
};

/// The elements of a contiguous tensor in float or double, in double.
MT_API std::vector<double> host_values(const Tensor& t);

/// Selects experts. `logits` are f32 or f64; scores, and the gradients of logits until they are
/// rounded to the type of the logits, are in double for both. Ties go to the expert with the
/// smaller number. Padding selects none, has the weight 0, and counts neither in the losses nor in
/// the record. `record` may be null and must outlive the tape.
MT_API Routed route(const Tensor& logits_TE, const RouterRule& rule, const RouterBalance& balance,
                    RouterRecord* record);

/// A mapping of rows: row i of the result is row `from[i]` of the source, and row t of the source
/// goes to the rows `to[t, 0 … fan)` of the result, -1 where there are fewer than `fan`. Both are
/// int32.
struct RowMap {
  Tensor from;  // [R]
  Tensor to;    // [T, fan]
};

/// y[i] = x[from[i]], x [T,D] -> y [R,D]. The gradient of x sums over its copies, in the order of
/// `to`.
MT_API Tensor gather_rows(const Tensor& x_TD, const RowMap& map);

/// A mapping of rows whose results are weighted.
struct CombineMap {
  RowMap rows;         // fan = K · copies
  Tensor slot;         // [R], int32: index of each row's weight in the flattened weights [T·K]
  int64_t copies = 1;  // rows per pair of a token and one of its experts: one for each rank that
                       // holds a shard of the expert
};
/// The inverse of gather_rows, weighted: x [R,D] -> y [T,D] with y[t] = addend[t] + Σ_j
/// weights[t, j / copies] · x[to[t,j]], j ascending. `addend` [T,D] may be undefined.
MT_API Tensor combine_rows(const Tensor& x_RD, const Tensor& weights_TK, const CombineMap& map,
                           const Tensor& addend = {});

/// How swish_gate() gates.
struct SwishGate {
  float factor = 1;  // 1: silu; 1.702: an approximation of gelu (Hendrycks & Gimpel 2016,
                     // arXiv:1606.08415)
  float offset = 0;
  float limit = 0;  // 0: none
  bool operator==(const SwishGate&) const = default;
};
/// y = g · sigmoid(factor · g) · (u + offset) with g = min(gate, limit) and u = min(max(up,
/// -limit), limit), as in gpt-oss (OpenAI 2025, arXiv:2508.10925). Computed in float and rounded
/// once; where a limit replaces a value, the gradient is 0. Limits hold for infinite values, too;
/// g = -inf gives NaN, as PyTorch's silu does. About twenty passes over memory: there
/// is no fused kernel.
MT_API Tensor swish_gate(const Tensor& gate_RF, const Tensor& up_RF, const SwishGate& form);

/// Number of rows of each expert, or to or from each rank. On the host.
using RowCounts = std::shared_ptr<const std::vector<int64_t>>;
/// y[R,N]: the rows of expert e, which are consecutive, times w[e]ᵀ of w[E,N,D], plus b[e] of
/// b[E,N], which may be undefined. `rows` has the number of rows of each expert. With `later`, the
/// gradient of w is deferred to it, unless backward defers gradients of parameters anyway; the
/// caller runs it. With `quantized`, which must outlive the tape, the products are in a
/// low-precision type, for each expert separately.
MT_API Tensor grouped_linear(const Tensor& x_RD, const Tensor& w_END, const RowCounts& rows,
                             const std::shared_ptr<DeferredGradients>& later = nullptr,
                             const QuantizedProducts* quantized = nullptr, const Tensor& b_EN = {});

}  // namespace mtrain
