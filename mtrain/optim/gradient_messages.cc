#include "mtrain/optim/gradient_messages.h"

#include <utility>

namespace mtrain {

void GradientSum::wait() {
  pending_.wait();
  if (auto after = std::exchange(after_, {})) after();
}

void GradientSum::abandon() {
  pending_.wait();
  after_ = {};
}

Tensor GradientMessages::message(const Tensor& grads, int64_t ranks) const {
  MemoryScope use(ctx_.memory(), MemoryUse::gradients);
  const int64_t count = grads.numel(), size = (count + ranks - 1) / ranks * ranks;
  Tensor out = ctx_.empty({size}, DType::bf16);
  if (size > count) ctx_.fill_zero(out);
  ctx_.copy(out.slice(0, 0, count), grads);
  return out;
}

// The pieces are those of all ranks, in the order of ranks.
void GradientMessages::sum(const Tensor& pieces, const Tensor& into) const {
  const int64_t count = into.numel();
  ctx_.copy(into, pieces.slice(0, 0, count));
  for (int64_t at = count; at < pieces.numel(); at += count)
    ctx_.accumulate(into, pieces.slice(0, at, at + count));
}

GradientSum GradientMessages::start_all_reduce(Communicator& ranks, const Tensor& grads) const {
  if (wire_ == GradientWire::fp32 || ranks.size() == 1) return {ranks.start_all_reduce(grads), {}};
  Tensor sent = message(grads, ranks.size());
  auto back = [this, sent, grads] { ctx_.copy(grads, sent.slice(0, 0, grads.numel())); };
  if (wire_ == GradientWire::bf16_sum_bf16) return {ranks.start_all_reduce(sent), back};
  MemoryScope use(ctx_.memory(), MemoryUse::gradients);
  Tensor pieces = ctx_.empty(sent.shape(), DType::bf16);
  Pending exchange = ranks.start_all_to_all(sent, pieces);
  return {std::move(exchange), [this, &ranks, sent, pieces, back] {
            MemoryScope use(ctx_.memory(), MemoryUse::gradients);
            const int64_t own = sent.numel() / ranks.size();
            Tensor total = ctx_.empty({own}, DType::f32);
            sum(pieces, total);
            Tensor rounded = sent.slice(0, own * ranks.rank(), own * (ranks.rank() + 1));
            ctx_.copy(rounded, total);
            ranks.all_gather(rounded, sent);
            back();
          }};
}

GradientSum GradientMessages::start_reduce_scatter(Communicator& ranks, const Tensor& grads,
                                                   const Tensor& part) const {
  if (wire_ == GradientWire::fp32 || ranks.size() == 1)
    return {ranks.start_reduce_scatter(grads, part), {}};
  Tensor sent = message(grads, ranks.size());
  MemoryScope use(ctx_.memory(), MemoryUse::gradients);
  if (wire_ == GradientWire::bf16_sum_bf16) {
    Tensor own = ctx_.empty(part.shape(), DType::bf16);
    Pending reduction = ranks.start_reduce_scatter(sent, own);
    return {std::move(reduction), [this, sent, own, part] { ctx_.copy(part, own); }};
  }
  Tensor pieces = ctx_.empty(sent.shape(), DType::bf16);
  Pending exchange = ranks.start_all_to_all(sent, pieces);
  return {std::move(exchange), [this, sent, pieces, part] { sum(pieces, part); }};
}

}  // namespace mtrain
