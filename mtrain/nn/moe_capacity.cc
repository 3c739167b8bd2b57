#include "mtrain/nn/moe_capacity.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace mtrain {
namespace {

/// A selected expert of a token, as exchanged between ranks.
struct Candidate {
  int64_t token = 0;
  int32_t expert = 0;
  float weight = 0;
};
static_assert(sizeof(Candidate) == 16);

/// Gathers the data of all ranks of the axis, in rank order; sizes may differ.
std::vector<Candidate> gather(const Axis* axis, std::vector<Candidate> mine) {
  if (!active_axis(axis)) return mine;
  auto ranks = static_cast<size_t>(axis->size());
  auto count = static_cast<int64_t>(mine.size());
  std::vector<int64_t> counts(ranks);
  axis->comm().all_gather(std::span<const int64_t>(&count, 1), std::span(counts));
  mine.resize(static_cast<size_t>(*std::max_element(counts.begin(), counts.end())));
  if (mine.empty()) return {};  // these ranks have only padding
  std::vector<Candidate> padded(mine.size() * ranks), all;
  auto size = static_cast<int64_t>(mine.size() * sizeof(Candidate));
  axis->comm().all_gather({mine.data(), size, DType::u8},
                          {padded.data(), size * axis->size(), DType::u8});
  for (size_t r = 0; r < ranks; ++r) {
    auto begin = padded.begin() + static_cast<ptrdiff_t>(r * mine.size());
    all.insert(all.end(), begin, begin + counts[r]);
  }
  return all;
}

/// The tokens of the micro-batch to which the rows of the residual stream belong.
std::vector<int64_t> tokens_of_rows(const ExecutionContext& ctx, int64_t rows) {
  std::vector<int64_t> out;
  std::vector<RowRange> ranges =
      ctx.own_tokens ? *ctx.own_tokens : std::vector<RowRange>{{0, rows}};
  for (const RowRange& range : ranges)
    for (int64_t i = 0; i < range.rows; ++i) out.push_back(range.first + i);
  MT_CHECK_EQ(static_cast<int64_t>(out.size()), rows);
  return out;
}

}  // namespace

int64_t max_tokens_per_expert(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  return static_cast<int64_t>(
      std::ceil(factor * static_cast<double>(tokens * top_k) / static_cast<double>(experts)));
}

void drop_beyond_capacity(const ExpertCapacity& capacity, ExecutionContext& ctx,
                          const ParallelContext& parallel, int64_t num_experts,
                          const std::vector<float>& weights, int64_t tokens,
                          std::vector<int32_t>& experts) {
  if (!capacity.factor) return;
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
  std::vector<Candidate> all = std::move(mine);
  if (ctx.backend().computes())  // a dry run has no peers
    for (const Axis* axis : {parallel.sequence_parallel ? parallel.tp : nullptr, parallel.cp})
      all = gather(axis, std::move(all));
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
}

}  // namespace mtrain
