#include "mtrain/tensor/memory_use.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/text.h"

namespace mtrain {

std::string_view name(MemoryUse use) {
  switch (use) {
    case MemoryUse::parameters:
      return "parameters";
    case MemoryUse::gradients:
      return "gradients";
    case MemoryUse::optimizer:
      return "optimizer";
    case MemoryUse::activations:
      return "activations";
    case MemoryUse::backward:
      return "backward";
    case MemoryUse::other:
      break;
  }
  return "other";
}

size_t MemoryBreakdown::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

std::string MemoryBreakdown::text() const {
  std::array<size_t, kMemoryUses> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::string out;
  for (size_t use : order)
    if (bytes[use] > 0)
      out += cat(out.empty() ? "" : ", ", name(static_cast<MemoryUse>(use)), " ",
                 human_bytes(bytes[use]));
  return out;
}

std::string memory_advice(const MemoryBreakdown& held) {
  using enum MemoryUse;
  const char* smaller_batch =
      "lower train.micro_batch_size or model.seq_length, or set model.recompute=full";
  const char* smaller_model = "use a smaller model (model.layers, model.hidden_size)";
  bool batch =
      held[activations] + held[backward] > held[parameters] + held[gradients] + held[optimizer];
  return batch ? cat(smaller_batch, "; or ", smaller_model)
               : cat(smaller_model, "; or ", smaller_batch);
}

}  // namespace mtrain
