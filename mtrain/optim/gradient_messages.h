// GradientMessages: how data-parallel ranks exchange and sum the gradients of a bucket. The
// gradients themselves are float. Refers to the context, which outlives it; for the rank's own
// thread. All ranks of a group make the same calls.
#pragma once
#include <functional>

#include "mtrain/comm/communicator.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// The element type of messages, and the type in which bf16 messages are summed.
enum class GradientWire : uint8_t {
  fp32,           // the communicator sums
  bf16_sum_fp32,  // ranks exchange bf16 pieces; each sums its own in float, in the order of ranks
  bf16_sum_bf16,  // the communicator sums bf16: NCCL rounds each partial sum to bf16, communicators
                  // of host memory round only the result
};

/// A sum that was started. Move-only.
class GradientSum {
 public:
  GradientSum() = default;  // a sum that is complete
  GradientSum(Pending pending, std::function<void()> after)
      : after_(std::move(after)), pending_(std::move(pending)) {}
  /// Advances the transfer without blocking.
  void progress() { (void)pending_.done(); }
  /// Returns when the result is available. May be collective: all ranks wait in the same order.
  void wait();
  /// Waits for the messages of a step that failed; there is no result.
  void abandon();

 private:
  std::function<void()> after_;  // from the message, which it owns, to the gradients
  Pending pending_;              // last: finished or dropped before its message is freed
};

class GradientMessages {
 public:
  GradientMessages(ExecutionContext& ctx, GradientWire wire) : ctx_(ctx), wire_(wire) {}

  /// Replaces `grads` on every rank by the sum over the ranks, which the bf16 wires round to bf16.
  GradientSum start_all_reduce(Communicator& ranks, const Tensor& grads) const;
  /// Rank r gets the r-th of equal shards of the sum in `part`, which may be the r-th shard of its
  /// own `grads`. REQUIRES: the number of ranks divides grads.numel().
  GradientSum start_reduce_scatter(Communicator& ranks, const Tensor& grads,
                                   const Tensor& part) const;

 private:
  /// `grads` in bf16, followed by zeros up to a multiple of the number of ranks.
  Tensor message(const Tensor& grads, int64_t ranks) const;
  void sum(const Tensor& pieces, const Tensor& into) const;

  ExecutionContext& ctx_;
  GradientWire wire_;
};

}  // namespace mtrain
