#include "mtrain/optim/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "mtrain/base/plugin_call.h"

namespace mtrain {

Optimizer::~Optimizer() = default;

OptimizerState::OptimizerState(Run& run, ParamList& parameters, Optimizer& optimizer)
    : OptimizerState(run, whole_slices(parameters), nullptr, optimizer) {}

OptimizerState::OptimizerState(Run& run, ParamBuckets& buckets, Optimizer& optimizer)
    : OptimizerState(run, buckets.slices(), &buckets, optimizer) {
  MT_CHECK(optimizer.elementwise() || buckets.options().zero_stage == 0 ||
               buckets.options().whole_parameters,
           "parameters are cut, which this optimizer cannot take");
}

OptimizerState::OptimizerState(Run& run, std::vector<ParamSlice> slices, ParamBuckets* buckets,
                               Optimizer& optimizer)
    : run_(run),
      buckets_(buckets),
      optimizer_(optimizer),
      names_(call_plugin(optimizer, "state_names()", [&] { return optimizer.state_names(); })) {
  MemoryScope use(run.memory(), MemoryUse::optimizer);
  for (ParamSlice& slice : slices) {
    Entry entry{std::move(slice), {}};
    for (size_t i = 0; i < names_.size(); ++i)
      entry.state.push_back(run.zeros(entry.master.shape(), DType::f32));
    auto& counted = counted_.emplace_back();
    for (auto [begin, end] : entry.parameter->primary_ranges()) {
      int64_t lo = std::max(begin, entry.begin), hi = std::min(end, entry.begin + entry.count);
      if (lo < hi) counted.emplace_back(lo - entry.begin, hi - entry.begin);
    }
    entries_.push_back(std::move(entry));
  }
}

// The square of a float is exact in double, so how parameters are cut shows in the last bits of a
// double only.
double OptimizerState::norm_of(Tensor ParamSlice::*tensor, Communicator* world) const {
  std::deque<double> parts;  // on a device, they come when it is waited for: once, for all
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (world && !entries_[i].is_primary) continue;
    const float* elements = (entries_[i].*tensor).data<float>();
    for (auto [begin, end] : counted_[i])
      run_.kernels().squared_norm(
          run_.stream(),
          {.x = elements + begin, .count = end - begin, .out = &parts.emplace_back(0)});
  }
  run_.stream().synchronize();
  double squares = std::accumulate(parts.begin(), parts.end(), 0.0);
  if (world) squares = world->all_reduce_value(squares);
  return std::sqrt(squares);
}

double OptimizerState::grad_norm(double grad_scale, Communicator* world) const {
  return norm_of(&ParamSlice::grad, world) * grad_scale;
}
double OptimizerState::params_norm(Communicator* world) const {
  return norm_of(&ParamSlice::master, world);
}

double clip_factor(double grad_norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (grad_norm + 1e-6)) : 1.0;
}

void OptimizerState::update(const Step& step) {
  MemoryScope use(run_.memory(), MemoryUse::optimizer);
  auto scale = static_cast<float>(step.grad_scale * clip_factor(step.grad_norm, step.clip));
  for (auto& entry : entries_) {
    const Parameter& p = *entry.parameter;
    const ParamUpdate update{.run = run_,
                             .name = p.name,
                             .master = entry.master,
                             .grad = entry.grad,
                             .state = entry.state,
                             .value = entry.value,
                             .lr = step.lr,
                             .weight_decay = p.decay ? step.weight_decay : 0,
                             .grad_scale = scale,
                             .step = step.step};
    call_plugin(optimizer_, "update()", [&] { optimizer_.update(update); });
  }
  if (buckets_) buckets_->publish();
}

void OptimizerState::masters_changed() {
  if (buckets_) return buckets_->masters_changed();
  for (Entry& entry : entries_)
    if (entry.value.defined()) run_.copy(entry.value, entry.master);
}

}  // namespace mtrain
