// An all-to-all of rows on the tape, started by one op and awaited by another: the ops in between
// overlap with the transfer, in forward and (in reverse order) in backward. For the rank's own
// thread; the axis must outlive the tape.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

enum class TokenExchange : uint8_t {
  dispatch,  // tokens to their experts
  combine    // results of experts to their tokens
};
/// Called when an exchange starts, in forward and in backward.
using ExchangeWatch = std::function<void(TokenExchange what, bool backward)>;

/// The sum of the numbers of rows that ranks send or receive.
int64_t total_rows(const std::vector<int64_t>& counts);

/// One exchange: sends `send[r]` consecutive rows to rank r and receives `recv[r]` rows from it.
/// The gradient takes the opposite direction.
struct RowExchange {
  const Axis* axis = nullptr;
  RowCounts send, recv;
  TokenExchange what = TokenExchange::dispatch;
  std::shared_ptr<ExchangeWatch> watch = nullptr;  // null or empty: no call
  bool overlap = false;  // ops between begin_exchange() and end_exchange() overlap with the
                         // transfer; false: the first of the two waits for it
  /// Called between start and wait, once per direction; null or empty: no call.
  std::shared_ptr<std::function<void()>> during_token_exchange;
  /// Deferred gradients that are computed while gradients of rows are in transfer; null: none.
  std::shared_ptr<DeferredGradients> overlapped_gradients;

  // The state of the transfer, for begin_exchange() and end_exchange() only.
  void start(const Tensor& x, bool backward);
  void finish();
  Tensor source, result;
  Pending pending;
  bool under_way = false;
};

/// x [R,D] -> the rows that this rank receives, which are valid only after end_exchange().
/// Collective, in forward and backward.
MT_API Tensor begin_exchange(const Tensor& x_RD, const std::shared_ptr<RowExchange>& exchange);
/// Returns `begun` itself, complete. Collective, in forward and backward.
MT_API Tensor end_exchange(const Tensor& begun, const std::shared_ptr<RowExchange>& exchange);

}  // namespace mtrain
