// The differentiable ops of mixtures of experts: the router, the way of tokens to rows of experts
// and back, and products with one matrix per expert. The choice of experts is made on the host,
// where the numbers of rows are needed anyway. T tokens, E experts, K experts per token, D width, N
// outputs, R rows: one for each pair of a token and its expert.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// logits[T,E] = x[T,D] · w[E,D]ᵀ, all in float whatever the dtype of x.
MT_API Tensor router_logits(const Tensor& x_TD, const Tensor& w_ED);

/// How logits become choices.
struct RouterRule {
  enum class Score : uint8_t { softmax, sigmoid, sqrt_softplus } score = Score::softmax;
  int64_t top_k = 2;
  bool pre_softmax = false;  // softmax over all experts, as it is, instead of over the chosen ones
  double scaling = 1;        // of the chosen scores
  int64_t groups = 0;        // > 0: experts come from `group_top_k` of these groups, those with the
                             // largest sums of their
  int64_t group_top_k =
      0;  // max(1, top_k / group_top_k) best scores (DeepSeek-AI 2024, arXiv:2412.19437, 2.1.2)
};

/// A loss that draws experts towards equal load: f_e · P_e summed over experts, for the tokens of
/// one group, with f_e the share of choices that fall on expert e times E, and P_e its mean score
/// (Fedus et al. 2022, arXiv:2101.03961, eq. 4).
struct BalanceTerm {
  enum class Over : uint8_t { micro_batch, sequence, given } over = Over::micro_batch;
  double coefficient = 0;
  std::span<const float>
      load;  // given: f of each expert, known from elsewhere; read in forward only
};

/// What balances a router. `add_up` makes sums over all ranks that share the tokens of the
/// micro-batch; empty: one rank. The losses enter the gradient of the logits with `token_weight`
/// per token, as every token's own loss does.
struct RouterBalance {
  std::vector<BalanceTerm> terms;
  double z_coefficient =
      0;  // of mean (log sum exp logits)² (Zoph et al. 2022, arXiv:2202.08906, eq. 5)
  std::span<const float>
      bias;  // [E], joins in the choice only (Wang et al. 2024, arXiv:2408.15664); may be empty
  std::span<const int32_t>
      sequence_of;  // [T], the sequence of each token, for terms over sequences
  int64_t sequences = 0;
  std::function<void(std::span<int64_t>)> add_up;
  float token_weight = 0;
};

/// What routers have done since they were last asked; filled by backward, so that it counts once
/// what is recomputed.
struct RouterRecord {
  std::vector<int64_t> choices;  // [E], of the experts that were chosen
  std::vector<double> terms;     // sums over this rank's tokens, by term
  double z = 0;                  // the same of the z loss, coefficient included
  int64_t tokens = 0;
};

struct Routed {
  Tensor weights_TK;             // float, with its place on the tape
  std::vector<int32_t> experts;  // [T*K], the choices of a token in falling order of score
};

/// Chooses experts. Ties go to the expert of smaller number. `record` may be null and outlives the
/// tape.
MT_API Routed route(const Tensor& logits_TE, const RouterRule& rule, const RouterBalance& balance,
                    RouterRecord* record);

/// Which rows come from which: row i of the result is row `from[i]` of the source, and row t of the
/// source went to the rows `to[t, 0 … fan)` of the result, -1 where there are fewer. Both int32.
struct RowMap {
  Tensor from;  // [R]
  Tensor to;    // [T, fan]
};

/// y[i] = x[from[i]]; the gradient of x is the sum over its copies, in the order of `to`.
MT_API Tensor gather_rows(const Tensor& x_TD, const RowMap& map);

/// The way back: y[t] = addend[t] + Σ_j weights[t, j / copies] · x[to[t,j]], j ascending, with fan
/// = K · copies. `slot` [R] is each row's place in `weights`, counted over T·K. `addend` may be
/// undefined.
struct CombineMap {
  RowMap rows;
  Tensor slot;
  int64_t copies = 1;
};
MT_API Tensor combine_rows(const Tensor& x_RD, const Tensor& weights_TK, const CombineMap& map,
                           const Tensor& addend = {});

/// y[R,N]: rows of expert e, which follow one another, times w[e]ᵀ of w[E,N,D]. `rows` counts those
/// of each expert. With `later`, a backward that does not put gradients of parameters off by itself
/// leaves that of w there, for who runs it. With `small`, which outlives the tape, in a
/// low-precision type, each expert by itself.
using RowCounts = std::shared_ptr<const std::vector<int64_t>>;
MT_API Tensor grouped_linear(const Tensor& x_RD, const Tensor& w_END, const RowCounts& rows,
                             const std::shared_ptr<DeferredGradients>& later = nullptr,
                             const QuantizedProducts* quantized = nullptr);

}  // namespace mtrain
