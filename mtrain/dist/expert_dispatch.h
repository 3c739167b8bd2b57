// Dispatch of tokens to the ranks of their experts and back. The ranks of a group hold the experts
// in order: part p of ep parts holds experts p*E/ep …, and each part consists of `copies` adjacent
// ranks that hold a shard of every matrix of its experts (etp). A token's row goes to all copies of
// each of its experts, whose results are partial sums. So one exchange serves both expert
// parallelism and tensor parallelism within experts, and the sum over copies is part of the sum
// over the token's experts. The alternative, gather_tokens, sends whole tokens to all ranks.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/row_exchange.h"

namespace mtrain {

/// How the experts of a block are sharded over ranks. A value type; the mesh owns the axis.
struct ExpertRanks {
  const Axis* group = nullptr;  // ep x etp as one group, ep outermost; null: one rank
  int64_t copies = 1;           // ranks that share each expert (etp)
  int64_t experts = 1;
  /// Called between the start of an exchange and the wait for it; null or empty: no call.
  std::shared_ptr<std::function<void()>> during_token_exchange = nullptr;
  std::shared_ptr<ExchangeWatch> exchange_watch = nullptr;
  /// Computes the gradients of the experts' matrices while the gradients of their inputs are
  /// exchanged.
  bool overlap_wgrad = false;
  /// Ops between send() and arrive() overlap with the exchange; otherwise send() waits for it. The
  /// ops and the bits of the result are the same.
  bool overlap_send = false;
  /// Instead of two all-to-alls of rows, an all-gather gives every rank the tokens of all ranks,
  /// and a reduce-scatter sums the results of the ranks' experts. All ranks have the same number of
  /// tokens.
  bool gather_tokens = false;

  int64_t ranks() const { return group ? group->size() : 1; }
  int64_t parts() const { return ranks() / copies; }
  int64_t experts_here() const { return experts / parts(); }
};

/// The dispatch of one micro-batch's tokens in a block of experts. Owns index tensors of the run;
/// lives as long as the tape needs it. For the rank's own thread.
class MT_API ExpertDispatch {
 public:
  /// `experts` [T*K]: the experts of each token. A negative number selects no expert (padding, or a
  /// token beyond the capacity). `padded`: number of rows that each expert gets; copies of rows
  /// that have no effect fill it up, unless this rank gets no row at all. 0: as many as there are.
  /// Collective: exchanges the numbers of rows.
  ExpertDispatch(ExecutionContext& ctx, const ExpertRanks& ranks,
                 const std::vector<int32_t>& experts, int64_t tokens, int64_t padded = 0);

  /// Rows [R,D] for the experts of this rank, grouped by expert, in the order of all ranks' tokens.
  /// Collective, in forward and backward.
  Tensor dispatch(const Tensor& x_TD) const { return arrive(send(x_TD)); }
  /// dispatch() in two halves; pass the result of send() to arrive() unchanged. Ops between them on
  /// the tape run between the start and the end of the exchange, in forward and backward.
  Tensor send(const Tensor& x_TD) const;
  Tensor arrive(const Tensor& sent) const;
  /// Where experts must defer the gradients of their matrices; null: they must not.
  const std::shared_ptr<DeferredGradients>& deferred_gradients() const { return weights_; }
  /// y[T,D]: y[t] = addend[t] + Σ over the token's experts, in its order, of weight times the
  /// expert's result. Collective, in forward and backward.
  Tensor combine(const Tensor& rows_RD, const Tensor& weights_TK, const Tensor& addend = {}) const;
  /// Number of rows of each expert of this rank, with padding.
  const RowCounts& rows() const { return rows_; }
  /// Number of rows that this rank sent and received, including its own. With gather_tokens, both
  /// are the number of rows of this rank's experts.
  int64_t rows_sent() const { return sent_; }
  int64_t rows_here() const { return here_; }

 private:
  void plan_sending(ExecutionContext& ctx, const std::vector<int32_t>& experts, int64_t tokens);
  std::vector<int64_t> exchange_counts(const std::vector<int64_t>& rows_of_expert,
                                       bool peers) const;
  void plan_receiving(ExecutionContext& ctx, const std::vector<int64_t>& counts);
  void plan_groups(ExecutionContext& ctx, const std::vector<int64_t>& rows,
                   std::vector<int32_t> from);
  void plan_own_rows(ExecutionContext& ctx, const std::vector<int32_t>& experts, int64_t tokens);
  std::vector<int32_t> experts_of_all(ExecutionContext& ctx, const std::vector<int32_t>& experts,
                                      int64_t tokens) const;
  bool gathers() const { return ranks_.gather_tokens && ranks_.ranks() > 1; }

  ExpertRanks ranks_;
  CombineMap map_;            // between tokens and sent rows
  RowMap regroup_, restore_;  // between rows in order of arrival and rows grouped by expert, with
                              // padding; undefined if they are the same
  std::shared_ptr<const std::vector<int64_t>> send_, recv_;  // number of rows to and from each rank
  RowCounts rows_;
  int64_t sent_ = 0, here_ = 0, padded_ = 0;
  std::shared_ptr<RowExchange> there_;
  std::shared_ptr<DeferredGradients> weights_;
};

}  // namespace mtrain
