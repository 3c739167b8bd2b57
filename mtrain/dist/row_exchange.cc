#include "mtrain/dist/row_exchange.h"

#include <numeric>

namespace mtrain {

int64_t total_rows(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

namespace {

struct Begin {  // starts the exchange; backward completes that of x's gradient
  std::shared_ptr<RowExchange> exchange;

  Tensor forward(ExecutionContext&, const Tensor& x) {
    exchange->start(x, false);
    if (!exchange->overlap) exchange->finish();
    return exchange->result;
  }
  // Returns the gradient that End's backward sent.
  void backward(ExecutionContext& ctx, const Tensor&, Grads<1>& g) {
    exchange->finish();
    g[0].give(ctx, std::exchange(exchange->result, {}));
  }
};

struct End {  // completes the exchange; backward starts that of the gradient
  std::shared_ptr<RowExchange> exchange;

  Tensor forward(ExecutionContext&, const Tensor& begun) {
    exchange->finish();
    exchange->result = {};
    return begun;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    exchange->start(dy, true);
    if (exchange->overlapped_gradients) exchange->overlapped_gradients->run();
    if (!exchange->overlap) exchange->finish();
    g[0].give(ctx, dy);
  }
};

}  // namespace

// A dry run has no peers: it receives as many rows as it sends, and moves nothing.
void RowExchange::start(const Tensor& x, bool backward) {
  if (watch && *watch) (*watch)(what, backward);
  const RowCounts &to = backward ? recv : send, &from = backward ? send : recv;
  MT_CHECK(!under_way && x.shape().rank() == 2 && x.contiguous() && total_rows(*to) == x.size(0),
           x.shape(), " for ", total_rows(*to), " rows");
  ExecutionContext& ctx = x.context();
  int64_t width = x.size(1);
  source = x.detach();
  result = ctx.empty({total_rows(*from), width}, x.dtype());
  under_way = true;
  if (!ctx.backend().computes()) return;
  auto elements = [&](const RowCounts& rows) {
    std::vector<int64_t> out = *rows;
    for (int64_t& n : out) n *= width;
    return out;
  };
  pending = axis->comm().start_all_to_all_v(x, elements(to), result, elements(from));
}

void RowExchange::finish() {
  if (!std::exchange(under_way, false)) return;
  if (during_token_exchange && *during_token_exchange) (*during_token_exchange)();
  pending.wait();
  pending = {};
  source = {};
}

Tensor begin_exchange(const Tensor& x, const std::shared_ptr<RowExchange>& exchange) {
  MT_CHECK(static_cast<int>(exchange->send->size()) == exchange->axis->size() &&
               static_cast<int>(exchange->recv->size()) == exchange->axis->size(),
           exchange->axis->name());
  return apply(Begin{.exchange = exchange}, x);
}

Tensor end_exchange(const Tensor& begun, const std::shared_ptr<RowExchange>& exchange) {
  return apply(End{.exchange = exchange}, begun);
}

}  // namespace mtrain
