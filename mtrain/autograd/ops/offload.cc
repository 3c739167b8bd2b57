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
  Tensor forward(Run&, const Tensor& x) { return x; }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) { g[0].give(run, dy); }
};

struct OffloadEnd {
  std::vector<Moved> moved;

  Tensor forward(Run& run, const Tensor& y) {
    run.stream().synchronize();
    std::vector<std::weak_ptr<Storage>> blocks = std::move(*run.made);
    run.made.reset();
    for (const auto& made : blocks) {
      auto block = made.lock();
      if (!block || !block->resident() || block == y.storage() || block->bytes() < kSmallest)
        continue;
      Moved& m = moved.emplace_back(Moved{made, {}});
      if (run.backend().computes()) {
        m.values.resize(block->bytes());
        run.backend().copy(run.stream(), m.values.data(), block->data(), block->bytes());
      }
      block->release();
    }
    return y;
  }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    for (Moved& m : moved) {
      auto block = m.block.lock();
      if (!block) continue;
      block->restore();
      if (run.backend().computes())
        run.backend().copy(run.stream(), block->data(), m.values.data(), m.values.size());
    }
    run.stream().synchronize();
    g[0].give(run, dy);
  }
};

}  // namespace

Tensor offload_begin(const Tensor& x) {
  Run& run = x.run();
  if (!run.grad_enabled) return x;
  MT_CHECK(!run.made, "a part that is offloaded inside of another");
  run.made.emplace().push_back(x.storage());
  return x.node() ? apply(OffloadBegin{}, x) : x;
}

Tensor offload_end(const Tensor& y) {
  Run& run = y.run();
  if (!run.grad_enabled) return y;
  MT_CHECK(run.made, "offload_end() without offload_begin()");
  return apply(OffloadEnd{}, y);
}

}  // namespace mtrain
