#include "mtrain/nn/block_plan.h"

#include <algorithm>

namespace mtrain {
namespace {

using Block = std::function<Tensor(int64_t, const Tensor&)>;

Tensor run_group(const BlockPlan& plan, int64_t begin, int64_t end, bool again, bool offload,
                 const Block& block, Tensor x) {
  // A copy of the caller's closure, because backward calls it when the caller no longer exists.
  auto all = [block, begin, end](const Tensor& in) {
    Tensor y = in;
    for (int64_t i = begin; i < end; ++i) y = block(i, y);
    return y;
  };
  if (offload) x = offload_begin(x);
  x = again ? recompute(all, x, plan.keep_input) : all(x);
  return offload ? offload_end(x) : x;
}

}  // namespace

bool BlockPlan::recomputes(RecomputePart part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

Tensor run_blocks(const BlockPlan& plan, int64_t begin, int64_t end, const Block& block, Tensor x) {
  int64_t step = plan.full && !plan.first_only ? plan.recompute_layers : 1;
  for (int64_t i = begin; i < end; i += step) {
    bool again = plan.full && (!plan.first_only || i - begin < plan.recompute_layers);
    x = run_group(plan, i, std::min(end, i + step), again, i - begin < plan.offloaded, block, x);
  }
  return x;
}

}  // namespace mtrain
