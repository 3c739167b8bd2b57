// Activation offloading. Storage that was created within a part of the model and is still alive at
// its end is held by the tape. It moves to the host at the end of the part's forward, and back when
// backward enters the part.
#include <cstddef>
#include <memory>
#include <vector>

#include "mtrain/autograd/ops.h"

namespace mtrain {
namespace {

/// Smaller blocks are not worth a transfer: statistics of a few rows, counters.
constexpr size_t kSmallest = 1024;

struct Moved {
  std::weak_ptr<Storage> block;
  std::vector<std::byte> values;
};

struct OffloadBegin {
  Tensor forward(ExecutionContext&, const Tensor& x) { return x; }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) { g[0].give(ctx, dy); }
};

struct OffloadEnd {
  std::vector<Moved> moved;

  Tensor forward(ExecutionContext& ctx, const Tensor& y) {
    ctx.stream().synchronize();
    std::vector<std::weak_ptr<Storage>> blocks = std::move(*ctx.created_storages);
    ctx.created_storages.reset();
    for (const auto& made : blocks) {
      auto block = made.lock();
      if (!block || !block->resident() || block == y.storage() || block->bytes() < kSmallest)
        continue;
      Moved& m = moved.emplace_back(Moved{made, {}});
      if (ctx.backend().computes()) {
        m.values.resize(block->bytes());
        ctx.backend().copy(ctx.stream(), m.values.data(), block->data(), block->bytes());
      }
      block->release();
    }
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    for (Moved& m : moved) {
      auto block = m.block.lock();
      if (!block) continue;
      block->restore();
      if (ctx.backend().computes())
        ctx.backend().copy(ctx.stream(), block->data(), m.values.data(), m.values.size());
    }
    ctx.stream().synchronize();
    g[0].give(ctx, dy);
  }
};

}  // namespace

Tensor offload_begin(const Tensor& x) {
  ExecutionContext& ctx = x.context();
  if (!ctx.grad_enabled) return x;
  MT_CHECK(!ctx.created_storages,
           "offload_begin() between offload_begin() and offload_end(): parts cannot nest");
  ctx.created_storages.emplace().push_back(x.storage());
  return x.node() ? apply(OffloadBegin{}, x) : x;
}

Tensor offload_end(const Tensor& y) {
  ExecutionContext& ctx = y.context();
  if (!ctx.grad_enabled) return y;
  MT_CHECK(ctx.created_storages, "offload_end() without offload_begin()");
  return apply(OffloadEnd{}, y);
}

}  // namespace mtrain
