// Capacities of experts: where an expert takes no more than its share of a micro-batch, times a
// factor, what is too much is dropped. What counts is the whole micro-batch, also where ranks of tp
// and cp share its tokens, so the layout does not matter. Stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "mtrain/nn/parallel.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

struct ExpertCapacity {
  enum class Keep : uint8_t {
    best,
    first
  } keep = Keep::best;           // the largest weights, or the earliest tokens
  std::optional<double> factor;  // absent: nothing is dropped
};

/// The places of an expert: ceil(factor * tokens * K / E) (Lepikhin et al. 2020, arXiv:2006.16668).
MT_API int64_t expert_places(double factor, int64_t tokens, int64_t top_k, int64_t experts);

/// Sets to -1 those choices [T*K] that find no place. `weights` [T*K] are theirs; equal ones go by
/// token. The tokens' order is that of the run's rows of the residual stream. Collective over tp
/// (under sequence parallelism) and cp.
MT_API void drop_beyond_capacity(const ExpertCapacity& capacity, ExecutionContext& ctx,
                                 const ParallelContext& parallel, int64_t num_experts,
                                 const std::vector<float>& weights, int64_t tokens,
                                 std::vector<int32_t>& experts);

}  // namespace mtrain
