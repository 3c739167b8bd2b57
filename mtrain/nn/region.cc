#include "mtrain/nn/region.h"

#include <algorithm>

#include "mtrain/autograd/ops.h"
#include "mtrain/dist/redistribute.h"
#include "mtrain/nn/adapter.h"
#include "mtrain/nn/block_plan.h"

namespace mtrain {

Tensor Region::enter(const Tensor& x) const {
  return sharded()
             ? redistribute(x, *parallel_->tp, parallel_->residual_placement(), Placement::R())
             : x;
}

Tensor Region::leave(const Tensor& x) const {
  return sharded()
             ? redistribute(x, *parallel_->tp, Placement::P(), parallel_->residual_placement())
             : x;
}

GatheredProducts Region::gather(const Tensor& x, std::span<const Projection> layers) const {
  bool large = overlaps();
  std::vector<LinearWeights> weights;
  for (const auto& [layer, adapter] : layers) {  // either product, forward and backward;
                                                 // low-precision types need all rows for their
                                                 // scales
    large = large && !layer.quantized && !layer.coded && !adapter &&
            rows_may_be_split(x.size(0), layer.w.size(0), layer.w.size(1));
    weights.push_back(layer);
  }
  if (large) return gathered_linear(x, *parallel_->tp, weights);
  GatheredProducts out{.whole_TD = enter(x), .y = {}};
  for (const auto& [layer, adapter] : layers) {
    out.y.push_back(adapter ? adapter->product(out.whole_TD, layer) : linear(out.whole_TD, layer));
  }
  return out;
}

void Region::project(const Tensor& normed, std::span<const Projection> layers,
                     std::span<Tensor> y) const {
  GatheredProducts products = gather(normed, layers);
  std::move(products.y.begin(), products.y.end(), y.begin());
  if (!plan_->recomputes(RecomputePart::layernorm)) return;
  // The tensor whose op can recompute it: the norm's result, unless gathering copied it.
  const bool copied = normed.storage() != products.whole_TD.storage();
  if (shared_input_ && !copied) return;
  y.back() = discard_until_backward(y.back(), copied ? products.whole_TD : normed);
}

Tensor Region::release_norm(const Tensor& y, const Tensor& normed) const {
  if (shared_input_ || !plan_->recomputes(RecomputePart::layernorm)) return y;
  return discard_until_backward(y, normed);
}

Tensor Region::leave(const Tensor& x, const Tensor& w, const QuantizedProducts* quantized) const {
  bool large = overlaps() && !quantized &&
               rows_may_be_split(x.size(0) / parallel_->tp->size(), w.size(0), w.size(1));
  return large ? linear_scattered(x, *parallel_->tp, w) : leave(linear(x, w, {}, {}, quantized));
}

Tensor Region::own_tokens(const Tensor& ids) const {
  if (!sharded() || !parallel_->sequence_parallel) return ids;
  int64_t n = parallel_->tp->size(), r = parallel_->tp->index(), tokens = ids.size(0);
  MT_USER_CHECK(tokens % n == 0, ErrorClass::config,
                cat(tokens, " tokens of a micro-batch cannot be divided among dist.tp=", n),
                "with dist.sp, dist.tp must divide model.seq_length");
  Tensor own = ids.slice(0, tokens / n * r, tokens / n * (r + 1));
  own.set_placement(Placement::S(0));
  return own;
}

}  // namespace mtrain
