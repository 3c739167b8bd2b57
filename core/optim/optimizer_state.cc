#include "mtrain/optim/optimizer_state.h"

#include <algorithm>
#include <cmath>

namespace mtrain {

Optimizer::~Optimizer() = default;

OptimizerState::OptimizerState(Run& run, ParamList& parameters, Optimizer& optimizer)
    : run_(run), parameters_(parameters), optimizer_(optimizer), names_(optimizer.state_names()) {
  MemoryScope use(run.memory(), MemoryUse::optimizer);
  for (auto& p : parameters.all()) {
    Entry entry{&p, {}};
    for (size_t i = 0; i < names_.size(); ++i) entry.state.push_back(run.zeros(p.master.shape(), DType::f32));
    entries_.push_back(std::move(entry));
  }
  counted_ = parameters.counted_ranges();
}

double OptimizerState::grad_norm(double grad_scale, Communicator* copy) const {
  const Tensor& g = parameters_.gradient_buffer();
  double squares = 0;
  for (auto [begin, end] : counted_) {
    double part = 0;
    run_.kernels().squared_norm(run_.stream(), {.x = g.data<float>() + begin, .count = end - begin, .out = &part});
    run_.stream().synchronize();
    squares += part;
  }
  if (copy) squares = copy->all_reduce_value(squares);
  return std::sqrt(squares) * grad_scale;
}

double clip_factor(double grad_norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (grad_norm + 1e-6)) : 1.0;
}

void OptimizerState::update(const Step& step) {
  MemoryScope use(run_.memory(), MemoryUse::optimizer);
  auto scale = static_cast<float>(step.grad_scale * clip_factor(step.grad_norm, step.clip));
  for (auto& entry : entries_) {
    Parameter& p = *entry.parameter;
    optimizer_.update({.run = run_,
                       .name = p.name,
                       .master = p.master,
                       .grad = p.main_grad,
                       .state = entry.state,
                       .value = p.value.dtype() == DType::f32 ? Tensor() : p.value,
                       .lr = step.lr,
                       .weight_decay = p.decay ? step.weight_decay : 0,
                       .grad_scale = scale,
                       .step = step.step});
  }
}

}  // namespace mtrain
