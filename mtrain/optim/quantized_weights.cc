#include "mtrain/optim/quantized_weights.h"

#include <algorithm>

namespace mtrain {
namespace {

bool alike(const WeightShard& a, const WeightShard& b) {
  return a.holders == b.holders && a.parameter->quantized->axes == b.parameter->quantized->axes;
}

}  // namespace

QuantizedWeights::QuantizedWeights(ExecutionContext& ctx, std::vector<WeightShard> weights,
                                   DType rounded)
    : ctx_(ctx), rounded_(rounded) {
  // In the order of first occurrence, which is the same on all ranks.
  std::vector<std::vector<WeightShard>> kinds;
  for (WeightShard& w : weights) {
    MT_CHECK(w.parameter->quantized, w.parameter->name, " cannot be codes");
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const auto& other) { return alike(other[0], w); });
    if (kind == kinds.end()) kind = kinds.emplace(kinds.end());
    kind->push_back(std::move(w));
  }
  int64_t at = 0;
  for (auto& kind : kinds)
    for (WeightShard& w : kind) {
      int64_t matrices = w.parameter->local.rank() == 3 ? w.parameter->local[0] : 1;
      weights_.push_back({{std::move(w)}, at, matrices});
      at += matrices;
    }
  for (const Weight& w : weights_) agree_on(w, *w.holders);
  for (const Weight& w : weights_)
    for (const Axis* axis : w.parameter->quantized->axes) agree_on(w, axis->comm());
  MemoryScope use(ctx.memory(), MemoryUse::parameters);
  measured_ = ctx.zeros({at}, DType::f32), factors_ = ctx.zeros({at}, DType::f32);
  for (const Weight& w : weights_) {
    auto own = [&](const Tensor& all) { return all.slice(0, w.first, w.first + w.matrices); };
    w.parameter->quantized->products->coded = {.amax = own(measured_), .factors = own(factors_)};
  }
}

/// One message for adjacent weights.
void QuantizedWeights::agree_on(const Weight& w, Communicator& ranks) {
  int64_t end = w.first + w.matrices;
  if (!sharers_.empty() && sharers_.back().ranks == &ranks && sharers_.back().end == w.first)
    sharers_.back().end = end;
  else
    sharers_.push_back({w.first, end, &ranks});
}

/// Calls visit(index of the matrix, first and one past the last of this rank's elements in it); the
/// range may be empty.
template <class Visit>
void QuantizedWeights::each_matrix(const Weight& w, Visit&& visit) const {
  int64_t size = w.parameter->numel() / w.matrices, count = w.codes.defined() ? w.codes.numel() : 0;
  for (int64_t m = 0; m < w.matrices; ++m) {
    int64_t lo = std::max(w.begin, m * size), hi = std::min(w.begin + count, (m + 1) * size);
    visit(w.first + m, lo - w.begin, std::max(lo, hi) - w.begin);
  }
}

void QuantizedWeights::make() {
  MemoryScope use(ctx_.memory(), MemoryUse::optimizer);
  measure();
  for (const Weight& w : weights_) encode(w);
}

// Rounding is monotonic: the largest rounded value is the rounded largest value.
void QuantizedWeights::measure() {
  require_kernel(ctx_, ctx_.kernels().amax, "amax");
  ctx_.fill_zero(measured_);
  for (const Weight& w : weights_)
    each_matrix(w, [&](int64_t at, int64_t lo, int64_t hi) {
      if (lo == hi) return;
      ctx_.kernels().amax(ctx_.stream(), {.x = w.master.slice(0, lo, hi).raw(),
                                          .count = hi - lo,
                                          .amax = measured_.slice(0, at, at + 1).data<float>(),
                                          .accumulate = false,
                                          .dtype = DType::f32});
    });
  Tensor rounded = ctx_.empty(measured_.shape(), rounded_);
  ctx_.copy(rounded, measured_);
  ctx_.copy(measured_, rounded);
  for (const Sharers& s : sharers_)
    s.ranks->all_reduce(measured_.slice(0, s.begin, s.end), ReduceOp::max);
}

void QuantizedWeights::encode(const Weight& w) {
  const QuantizedProducts& products = *w.parameter->quantized->products;
  Tensor known =
      products.delayed ? products.delayed->from_history(ctx_, QuantOperand::weight) : Tensor();
  each_matrix(w, [&](int64_t at, int64_t lo, int64_t hi) {
    Tensor measured = measured_.slice(0, at, at + 1), factor = factors_.slice(0, at, at + 1);
    const Tensor& amax = known.defined() ? known : measured;
    if (lo == hi) return products.encode(ctx_, measured, amax, {}, factor);  // only for the factor
    Tensor values = ctx_.empty({hi - lo}, rounded_);
    ctx_.copy(values, w.master.slice(0, lo, hi));
    products.encode(ctx_, values, amax, w.codes.slice(0, lo, hi), factor);
  });
}

}  // namespace mtrain
