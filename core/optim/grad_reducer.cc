#include "mtrain/optim/grad_reducer.h"

namespace mtrain {
namespace {

Buffer buffer(const Tensor& gradients) {
  return {gradients.data<float>(), gradients.numel(), DType::f32};
}

}  // namespace

void GradReducer::add(const Tensor& to, const Tensor& from) {
  run_.kernels().add(run_.stream(),
                     {.a = to.raw(), .b = from.raw(), .y = to.raw(), .count = to.numel(), .dtype = DType::f32});
}

void GradReducer::micro_batch_done() {
  if (!in_order_) return;
  parameters_.settle_gradients(run_);
  const Tensor& gradients = parameters_.gradient_buffer();
  if (ranks_.rank() == 0 && !kept_.empty()) {
    add(kept_[0], gradients);
  } else {
    MemoryScope use(run_.memory(), MemoryUse::gradients);
    Tensor copy = run_.empty(gradients.shape(), DType::f32);
    run_.kernels().cast(run_.stream(), {gradients.raw(), copy.raw(), copy.numel(), 1, false, DType::f32, DType::f32});
    kept_.push_back(std::move(copy));
  }
  parameters_.clear_gradients();
}

void GradReducer::reduce() {
  if (in_order_) return reduce_in_order();
  parameters_.settle_gradients(run_);
  add_partial_sums();
  if (ranks_.size() == 1) return;
  run_.stream().synchronize();
  ranks_.all_reduce(buffer(parameters_.gradient_buffer()));
}

void GradReducer::add_partial_sums() {
  for (auto& p : parameters_.all())
    for (const PartialSum& part : p.partial) {
      run_.stream().synchronize();
      part.axis->comm().all_reduce(Buffer(p.main_grad.data<float>() + part.begin, part.size, DType::f32));
    }
}

// The sum so far goes from rank to rank; the last one has it whole.
void GradReducer::reduce_in_order() {
  parameters_.settle_gradients(run_);
  const Tensor& sum = parameters_.gradient_buffer();
  int rank = ranks_.rank(), last = ranks_.size() - 1;
  if (rank > 0) ranks_.recv(buffer(sum), rank - 1);
  for (const Tensor& micro_batch : kept_) add(sum, micro_batch);
  kept_.clear();
  run_.stream().synchronize();
  if (rank < last) ranks_.send(buffer(sum), rank + 1);
  if (last > 0) ranks_.broadcast(buffer(sum), last);
  add_partial_sums();
}

double GradReducer::sum(std::span<const double> of_micro_batches) {
  values_.resize(of_micro_batches.size() * static_cast<size_t>(ranks_.size()));
  ranks_.all_gather(of_micro_batches, std::span(values_));
  double total = 0;
  for (double value : values_) total += value;
  return total;
}

}  // namespace mtrain
