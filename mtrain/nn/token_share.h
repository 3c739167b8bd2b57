// The shares of a micro-batch's tokens that ranks hold: exchange of values between the ranks that
// share the micro-batch (tp with sequence parallelism, and cp). Stateless.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "mtrain/nn/parallel.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// The tokens of the micro-batch to which the rows of the residual stream belong.
inline std::vector<int64_t> tokens_of_rows(const ExecutionContext& ctx, int64_t rows) {
  std::vector<int64_t> out;
  std::vector<RowRange> ranges =
      ctx.own_tokens ? *ctx.own_tokens : std::vector<RowRange>{{0, rows}};
  for (const RowRange& range : ranges)
    for (int64_t i = 0; i < range.rows; ++i) out.push_back(range.first + i);
  MT_CHECK_EQ(static_cast<int64_t>(out.size()), rows);
  return out;
}

/// Gathers the values of all ranks of the axis, in rank order; sizes may differ.
template <class T>
std::vector<T> gather_values(const Axis* axis, std::vector<T> mine) {
  if (!active_axis(axis)) return mine;
  auto ranks = static_cast<size_t>(axis->size());
  auto count = static_cast<int64_t>(mine.size());
  std::vector<int64_t> counts(ranks);
  axis->comm().all_gather(std::span<const int64_t>(&count, 1), std::span(counts));
  mine.resize(static_cast<size_t>(*std::max_element(counts.begin(), counts.end())));
  if (mine.empty()) return {};  // these ranks have only padding
  std::vector<T> padded(mine.size() * ranks), all;
  auto size = static_cast<int64_t>(mine.size() * sizeof(T));
  axis->comm().all_gather({mine.data(), size, DType::u8},
                          {padded.data(), size * axis->size(), DType::u8});
  for (size_t r = 0; r < ranks; ++r) {
    auto begin = padded.begin() + static_cast<ptrdiff_t>(r * mine.size());
    all.insert(all.end(), begin, begin + counts[r]);
  }
  return all;
}

/// Gathers the values of all ranks that share the micro-batch. A dry run has no peers. Collective.
template <class T>
std::vector<T> gather_micro_batch(const ExecutionContext& ctx, const ParallelContext& parallel,
                                  std::vector<T> mine) {
  if (!ctx.backend().computes()) return mine;
  for (const Axis* axis : {parallel.sequence_parallel ? parallel.tp : nullptr, parallel.cp})
    mine = gather_values(axis, std::move(mine));
  return mine;
}

}  // namespace mtrain
