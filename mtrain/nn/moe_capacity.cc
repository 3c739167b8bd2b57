#include "mtrain/nn/moe_capacity.h"

#include <algorithm>
#include <cmath>

#include "mtrain/nn/token_share.h"

namespace mtrain {
namespace {

/// A selected expert of a token, as exchanged between ranks.
struct Candidate {
  int64_t token = 0;
  int32_t expert = 0;
  float weight = 0;
};
static_assert(sizeof(Candidate) == 16);

}  // namespace

int64_t max_tokens_per_expert(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  return static_cast<int64_t>(
      std::ceil(factor * static_cast<double>(tokens * top_k) / static_cast<double>(experts)));
}

int64_t drop_beyond_capacity(const ExpertCapacity& capacity, ExecutionContext& ctx,
                             const ParallelContext& parallel, int64_t num_experts,
                             const std::vector<float>& weights, int64_t tokens,
                             std::vector<int32_t>& experts) {
  if (!capacity.factor) return 0;
  // A rank without tokens takes part in the exchange.
  int64_t k = tokens > 0 ? static_cast<int64_t>(experts.size()) / tokens : 1;
  std::vector<int64_t> token_of = tokens_of_rows(ctx, tokens);
  std::vector<Candidate> mine;
  auto candidate = [&](size_t i) {
    return Candidate{token_of[i / static_cast<size_t>(k)], experts[i],
                     std::isnan(weights[i]) ? -1 : weights[i]};
  };
  for (size_t i = 0; i < experts.size(); ++i)
    if (experts[i] >= 0) mine.push_back(candidate(i));
  std::vector<Candidate> all = gather_micro_batch(ctx, parallel, std::move(mine));
  int64_t most =
      max_tokens_per_expert(*capacity.factor, static_cast<int64_t>(all.size()) / k, k, num_experts);
  auto before = [&](const Candidate& a, const Candidate& b) {
    if (a.expert != b.expert) return a.expert < b.expert;
    if (capacity.keep == ExpertCapacity::Keep::best && a.weight != b.weight)
      return a.weight > b.weight;
    return a.token < b.token;
  };
  std::sort(all.begin(), all.end(), before);
  std::vector<std::optional<Candidate>> last(
      static_cast<size_t>(num_experts));  // that is within the capacity
  int64_t count = 0;                      // candidates of the same expert so far
  for (size_t i = 0; i < all.size(); ++i) {
    count = i > 0 && all[i].expert == all[i - 1].expert ? count + 1 : 1;
    if (count <= most) last[static_cast<size_t>(all[i].expert)] = all[i];
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] < 0) continue;
    const auto& worst = last[static_cast<size_t>(experts[i])];
    if (!worst || before(*worst, candidate(i))) experts[i] = -1;
  }
  return most;
}

int64_t padded_rows(ExecutionContext& ctx, const ParallelContext& parallel, int64_t most) {
  const Axis* group = active_axis(parallel.expert_group);
  if (!group) return most;
  // In a dry run each rank has a micro-batch of its own.
  if (!ctx.backend().computes()) return most * group->size();
  // A micro-batch is known by the first rank that shares it.
  const int64_t rank = group->comm().world_ranks()[static_cast<size_t>(group->index())];
  const std::vector<int64_t> sharing = gather_micro_batch(ctx, parallel, std::vector{rank});
  const std::vector<int64_t> firsts =
      gather_values(group, std::vector{*std::min_element(sharing.begin(), sharing.end())});
  const std::vector<int64_t> capacities = gather_values(group, std::vector{most});
  int64_t sum = 0;
  for (size_t i = 0; i < firsts.size(); ++i)
    if (std::find(firsts.begin(), firsts.begin() + static_cast<ptrdiff_t>(i), firsts[i]) ==
        firsts.begin() + static_cast<ptrdiff_t>(i))
      sum += capacities[i];
  return sum;
}

}  // namespace mtrain
