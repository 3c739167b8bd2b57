// Capacity of experts: the maximum number of tokens of a micro-batch that an expert processes;
// selections beyond it are dropped. The capacity is that of the whole micro-batch, also if its
// tokens are sharded over tp and cp, so the result does not depend on the layout. Stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "mtrain/nn/parallel.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

struct ExpertCapacity {
  enum class Keep : uint8_t {
    best,  // the tokens with the largest weights
    first  // the earliest tokens
  } keep = Keep::best;
  std::optional<double> factor;  // of an equal share of the tokens; absent: nothing is dropped
  bool pad = false;              // each expert gets padded_rows() rows
};

/// The maximum number of tokens per expert: ceil(factor * tokens * K / E) (Lepikhin et al. 2020,
/// arXiv:2006.16668).
MT_API int64_t max_tokens_per_expert(double factor, int64_t tokens, int64_t top_k, int64_t experts);

/// Sets the entries of `experts` [T*K] beyond the capacity of their expert to -1. Padding, whose
/// entries are -1 already, does not count. `weights` [T*K]: the weight of each selection; of equal
/// ones, the earlier token is kept. `tokens`: T, the tokens of this rank, whose positions in the
/// micro-batch are ExecutionContext::own_tokens. Collective over tp (with sequence parallelism) and
/// cp. Returns the capacity of an expert; 0 without a factor.
MT_API int64_t drop_beyond_capacity(const ExpertCapacity& capacity, ExecutionContext& ctx,
                                    const ParallelContext& parallel, int64_t num_experts,
                                    const std::vector<float>& weights, int64_t tokens,
                                    std::vector<int32_t>& experts);

/// The number of rows of an expert that is padded to its capacity: the sum of the capacities of the
/// micro-batches whose tokens its rank may get. `most`: the capacity of this rank's micro-batch.
/// Collective over tp (with sequence parallelism), cp and the expert group.
MT_API int64_t padded_rows(ExecutionContext& ctx, const ParallelContext& parallel, int64_t most);

}  // namespace mtrain
