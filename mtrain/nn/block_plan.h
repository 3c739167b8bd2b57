// BlockPlan: which activations of a model's blocks are kept between forward and backward, as set by
// the recipe: all, only the inputs of blocks, all but those of some parts, or all in host memory.
// The plan does not change a bit of any result. A value; run_blocks() is for the rank's own thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "mtrain/autograd/ops.h"

namespace mtrain {

/// Parts of a block whose activations are computed again in backward (selective recomputation).
enum class RecomputePart : uint8_t {
  core_attn,
  layernorm,
  mlp,
  moe,
  moe_act,
  shared_experts,
  mla_up_proj
};
inline constexpr std::string_view kRecomputeParts[] = {
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"};

struct MT_API BlockPlan {
  bool full = false;  // blocks are computed again from their inputs: all of them, in groups of
                      // `recompute_layers` blocks, or, with `first_only`, only the first
                      // `recompute_layers` blocks of a stage, one by one
  bool first_only = false;
  int64_t recompute_layers = 1;
  KeepInput keep_input = {};  // stores the inputs of those blocks; empty: they stay as tensors
  std::vector<RecomputePart> parts;
  int64_t offloaded = 0;  // number of blocks at the start of a stage whose activations are
                          // offloaded to host memory

  bool recomputes(RecomputePart part) const;
  /// Returns f(x…) for one or two tensors; the second one may be undefined. If the plan
  /// recomputes `part`, backward calls `f` again: it must hold what it needs by value or by
  /// references that outlive the tape.
  template <class F, class... X>
  Tensor run(RecomputePart part, const F& f, const X&... x) const {
    return recomputes(part) ? recompute(f, x...) : f(x...);
  }
};

/// Runs blocks [begin, end) of the model, the stage's own, one after the other.
MT_API Tensor run_blocks(const BlockPlan& plan, int64_t begin, int64_t end,
                         const std::function<Tensor(int64_t block, const Tensor& x)>& block,
                         Tensor x);

}  // namespace mtrain
