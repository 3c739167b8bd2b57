#include "mtrain/dist/row_messages.h"

#include "mtrain/comm/reduce.h"

namespace mtrain {
namespace {

/// Polls pending transfers: some transports make progress only when they are called.
void poke(std::vector<Pending>& all) {
  for (Pending& pending : all) pending.done();
}

}  // namespace

PiecewiseAllGather::PiecewiseAllGather(ExecutionContext& ctx, const Axis& axis, const Tensor& mine,
                                       const Tensor& whole)
    : whole_(whole),
      come_(static_cast<size_t>(axis.size())),
      gone_(static_cast<size_t>(axis.size())) {
  int n = axis.size(), me = axis.index();
  Tensor own = rows_of_rank(whole, me, n);
  MT_CHECK(own.shape() == mine.shape() && own.dtype() == mine.dtype(), mine.shape(), " of ",
           whole.shape());
  ctx.copy(own, mine);
  if (!ctx.backend().computes()) return;
  for (int step = 1; step < n; ++step) {  // from the rank `step` after; sends go `step` before
    int from = ring_index(me, step, n);
    come_[static_cast<size_t>(from)] = axis.comm().start_recv(rows_of_rank(whole, from, n), from);
  }
  for (int step = 1; step < n; ++step) {
    int to = ring_index(me, n - step, n);
    gone_[static_cast<size_t>(to)] = axis.comm().start_send(own, to);
  }
}

void PiecewiseAllGather::wait(int rank) {
  poke(gone_);
  come_[static_cast<size_t>(rank)].wait();
}

void PiecewiseAllGather::finish() {
  for (Pending& pending : come_) pending.wait();
  for (Pending& pending : gone_) pending.wait();
}

PiecewiseReduceScatter::PiecewiseReduceScatter(ExecutionContext& ctx, const Axis& axis,
                                               const Shape& piece, DType dtype)
    : ctx_(ctx),
      axis_(axis),
      summands_(static_cast<size_t>(axis.size())),
      sent_(summands_.size()),
      come_(summands_.size()),
      gone_(summands_.size()) {
  for (int step = 1; step < axis.size(); ++step) {
    int from = ring_index(axis.index(), axis.size() - step, axis.size());
    auto at = static_cast<size_t>(from);
    summands_[at] = ctx.empty(piece, dtype);
    if (ctx.backend().computes()) come_[at] = axis.comm().start_recv(summands_[at], from);
  }
}

void PiecewiseReduceScatter::send(int rank, const Tensor& summand) {
  auto at = static_cast<size_t>(rank);
  sent_[at] = summand;
  if (!ctx_.backend().computes()) return;
  gone_[at] = axis_.comm().start_send(summand, rank);
  poke(gone_);
  poke(come_);
}

Tensor PiecewiseReduceScatter::finish(const Tensor& own) {
  auto me = static_cast<size_t>(axis_.index());
  summands_[me] = own;
  Tensor sum = ctx_.empty(own.shape(), own.dtype());
  for (Pending& pending : come_) pending.wait();
  if (ctx_.backend().host_memory())
    add_on_host(sum);
  else
    add_on_device(sum);
  for (Pending& pending : gone_) pending.wait();
  summands_.clear();
  sent_.clear();
  return sum;
}

void PiecewiseReduceScatter::add_on_host(const Tensor& sum) const {
  if (!ctx_.backend().computes()) return;
  std::vector<const void*> inputs;
  for (const Tensor& summand : summands_) inputs.push_back(summand.raw());
  void* output = sum.raw();
  reduce_in_order(inputs, {&output, 1}, sum.numel(), sum.dtype(), ReduceOp::sum);
}

// The same sum as on the host.
void PiecewiseReduceScatter::add_on_device(const Tensor& sum) const {
  Tensor total = sum.dtype() == DType::f32 ? sum : ctx_.empty(sum.shape(), DType::f32);
  ctx_.copy(total, summands_[0]);
  for (size_t i = 1; i < summands_.size(); ++i) ctx_.accumulate(total, summands_[i]);
  if (sum.dtype() != DType::f32) ctx_.copy(sum, total);
}

}  // namespace mtrain
