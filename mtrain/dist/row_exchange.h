// An all-to-all of rows on the tape, begun by one op and waited for by another: what lies between
// the two runs while the rows travel, forwards and, the other way round, backwards. For the rank's
// own thread; the axis outlives the tape.
#pragma once
#include <functional>
#include <memory>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// One exchange: `send[r]` rows, back to back, to rank r, and `recv[r]` from it; its gradient takes
/// the way back.
struct RowExchange {
  const Axis* axis = nullptr;
  RowCounts send, recv;
  bool spread = false;  // what lies between begin and end runs while rows travel; otherwise the
                        // first of the two waits
  /// Called between beginning and waiting, once per direction; null or empty: nothing is.
  std::shared_ptr<std::function<void()>> while_travelling;
  /// Gradients that are computed while gradients of rows travel; null: there are none.
  std::shared_ptr<DeferredGradients> behind_gradients;

  void start(const Tensor& x, const RowCounts& to, const RowCounts& from);
  void finish();

  Tensor source, result;
  Pending pending;
  bool under_way = false;
};

/// x [R,D] to the rows that come for it, which are there behind end_exchange(). Collective,
/// forwards and backwards.
MT_API Tensor begin_exchange(const Tensor& x_RD, const std::shared_ptr<RowExchange>& exchange);
/// `begun` itself, complete. Collective, forwards and backwards.
MT_API Tensor end_exchange(const Tensor& begun, const std::shared_ptr<RowExchange>& exchange);

}  // namespace mtrain
