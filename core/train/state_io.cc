#include "mtrain/train/state_io.h"

#include <deque>


namespace mtrain {
namespace {

// Every tensor of the state with its name, in a fixed order.
std::vector<std::pair<std::string, Tensor>> named_tensors(ParamList& parameters, OptimizerState* optimizer) {
  std::vector<std::pair<std::string, Tensor>> named;
  for (auto& p : parameters.all()) named.emplace_back(p.name, p.master);
  if (!optimizer) return named;
  for (auto& entry : optimizer->entries())
    for (size_t i = 0; i < entry.state.size(); ++i)
      named.emplace_back(cat(entry.parameter->name, ".", optimizer->names()[i]), entry.state[i]);
  return named;
}

using HostCopies = std::deque<std::vector<std::byte>>;

std::vector<Slice> stage(const std::vector<std::pair<std::string, Tensor>>& named, HostCopies& host) {
  std::vector<Slice> slices;
  for (const auto& [name, tensor] : named) {
    auto& bytes = host.emplace_back(static_cast<size_t>(tensor.numel()) * size_of(tensor.dtype()));
    slices.push_back(whole_slice(name, tensor.dtype(), tensor.shape(), bytes));
  }
  return slices;
}

}  // namespace

SaveResult save_state(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer, const CheckpointMeta& meta) {
  auto named = named_tensors(parameters, optimizer);
  HostCopies host;
  auto slices = stage(named, host);
  for (size_t i = 0; i < named.size(); ++i) named[i].second.run().download(named[i].second, host[i].data());
  return store.save(meta.state.step, slices, to_json(meta));
}

void load_state(const CheckpointStore& store, int64_t step, ParamList& parameters, OptimizerState* optimizer) {
  auto named = named_tensors(parameters, optimizer);
  HostCopies host;
  auto slices = stage(named, host);
  store.load(step, slices);
  for (size_t i = 0; i < named.size(); ++i) named[i].second.run().upload(named[i].second, host[i].data());
  for (auto& p : parameters.all())
    if (p.value.dtype() != DType::f32) p.value.run().copy(p.value, p.master);
}

}  // namespace mtrain
