// Tokens to the ranks of their experts and back. Experts lie on the ranks of a group in order:
// experts p*E/ep … of the p-th of ep parts, each part on `copies` neighbouring ranks that hold a
// slice of every matrix of theirs (etp). A token's row goes to all copies of each of its experts,
// whose results are summands of the expert's; so one exchange serves both ways of cutting experts,
// and the sum over copies is taken where the token's experts are added up.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/row_exchange.h"

namespace mtrain {

/// How the experts of a block lie on ranks. A value; the axis is the mesh's.
struct ExpertRanks {
  const Axis* group = nullptr;  // ep x etp as one, ep outermost; null: one rank
  int64_t copies = 1;           // ranks that share each expert (etp)
  int64_t experts = 1;
  /// Called between beginning an exchange and waiting for it; null or empty: nothing is.
  std::shared_ptr<std::function<void()>> while_travelling = nullptr;
  /// The gradients of the experts' matrices are computed while those of their inputs travel back.
  bool wgrad_behind = false;
  /// What follows send() up to arrive() runs while the rows travel; otherwise send() waits for
  /// them. The same ops, the same bits.
  bool behind_send = false;

  int64_t ranks() const { return group ? group->size() : 1; }
  int64_t parts() const { return ranks() / copies; }
  int64_t experts_here() const { return experts / parts(); }
};

/// The way of one micro-batch's tokens through a block of experts. Holds index tensors of the run;
/// lives as long as the tape needs it.
class MT_API ExpertDispatch {
 public:
  /// `experts` [T*K] are each token's; negative: none, the token is dropped there. Collective:
  /// tells the ranks how many rows to expect.
  ExpertDispatch(Run& run, const ExpertRanks& ranks, const std::vector<int32_t>& experts,
                 int64_t tokens);

  /// Rows for the experts of this rank, grouped by expert, of all ranks' tokens in their order.
  /// Collective, also backwards.
  Tensor dispatch(const Tensor& x_TD) const { return arrive(send(x_TD)); }
  /// The same in two halves: what arrive() is given is only handed through. What lies between them
  /// on the tape runs, forwards and backwards, between the beginning of the exchange and its end.
  Tensor send(const Tensor& x_TD) const;
  Tensor arrive(const Tensor& sent) const;
  /// Where experts leave the gradients of their matrices; null: nowhere.
  const std::shared_ptr<DeferredGradients>& behind_exchange() const { return weights_; }
  /// y[t] = addend[t] + Σ over a token's experts, in its order, of weight times what they gave.
  /// Collective, also backwards.
  Tensor combine(const Tensor& rows_RD, const Tensor& weights_TK, const Tensor& addend = {}) const;
  /// Rows of each expert here.
  const RowCounts& rows() const { return rows_; }
  /// Rows that this rank sent away and got, its own included.
  int64_t rows_sent() const { return sent_; }
  int64_t rows_here() const { return here_; }

 private:
  void plan_sending(Run& run, const std::vector<int32_t>& experts, int64_t tokens);
  std::vector<int64_t> exchange_counts(const std::vector<int64_t>& rows_of_expert,
                                       bool peers) const;
  void plan_receiving(Run& run, const std::vector<int64_t>& counts);

  ExpertRanks ranks_;
  CombineMap map_;            // tokens and the rows that are sent
  RowMap regroup_, restore_;  // rows as they arrive, and grouped by expert
  std::shared_ptr<const std::vector<int64_t>> send_, recv_;  // rows to and from each rank
  RowCounts rows_;
  int64_t sent_ = 0, here_ = 0;
  std::shared_ptr<RowExchange> there_;
  std::shared_ptr<DeferredGradients> weights_;
};

}  // namespace mtrain
