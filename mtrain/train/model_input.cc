#include "mtrain/train/model_input.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace mtrain {

namespace {

/// 1 for each position of the micro-batch that is padding; empty: none.
std::vector<int32_t> padded_positions(const MicroBatch& batch) {
  std::vector<int32_t> out;
  for (size_t row = 0; row < batch.padding.size(); ++row) {
    if (batch.padding[row] == 0) continue;
    out.resize(batch.tokens.size());
    auto end = out.begin() + static_cast<ptrdiff_t>(row + 1) * batch.seq_length;
    std::fill(end - batch.padding[row], end, 1);
  }
  return out;
}

void set_padding(ModelInput& input, std::vector<int32_t> padded) {
  if (!padded.empty())
    input.padding = std::make_shared<const std::vector<int32_t>>(std::move(padded));
}

}  // namespace

ModelInput to_device(ExecutionContext& ctx, const MicroBatch& batch, bool with_targets) {
  Shape shape{static_cast<int64_t>(batch.tokens.size())};
  ModelInput input;
  input.tokens_T = ctx.from_host<int32_t>(batch.tokens, shape);
  input.positions_T = ctx.from_host<int32_t>(batch.positions, shape);
  if (with_targets) input.targets_T = ctx.from_host<int32_t>(batch.targets, shape);
  input.bounds = std::make_shared<const std::vector<int32_t>>(batch.cu_seqlens);
  set_padding(input, padded_positions(batch));
  return input;
}

namespace {

/// The value `depth` positions later in the same sequence; `none` where the sequence ends before.
std::vector<int32_t> shifted(const std::vector<int32_t>& values, const std::vector<int32_t>& bounds,
                             int64_t depth, int32_t none) {
  std::vector<int32_t> out(values.size(), none);
  for (size_t s = 0; s + 1 < bounds.size(); ++s)
    if (bounds[s + 1] - bounds[s] > depth)
      std::copy(values.begin() + bounds[s] + depth, values.begin() + bounds[s + 1],
                out.begin() + bounds[s]);
  return out;
}

void set_ahead(ModelInput& input, ExecutionContext& ctx, const MicroBatch& batch, int64_t depths) {
  for (int64_t depth = 1; depth <= depths; ++depth) {
    std::vector<int32_t> tokens = shifted(batch.tokens, batch.cu_seqlens, depth, 0),
                         targets = shifted(batch.targets, batch.cu_seqlens, depth, kIgnoredTarget);
    if (input.cp_slice) tokens = input.cp_slice->take(tokens);
    if (input.cp_slice) targets = input.cp_slice->take(targets);
    const Shape shape{static_cast<int64_t>(tokens.size())};
    input.ahead.push_back({.tokens_T = ctx.from_host<int32_t>(tokens, shape),
                           .targets_T = ctx.from_host<int32_t>(targets, shape),
                           .num_targets = std::count_if(targets.begin(), targets.end(),
                                                        [](int32_t t) { return t >= 0; })});
  }
}

/// The rows at positions [begin, end) of the concatenated ranges.
std::vector<RowRange> rows_of(const std::vector<RowRange>& ranges, int64_t begin, int64_t end) {
  std::vector<RowRange> some;
  int64_t row = 0;
  for (const RowRange& range : ranges) {
    int64_t from = std::max(row, begin), to = std::min(row + range.rows, end);
    if (from < to) some.push_back({range.first + from - row, to - from});
    row += range.rows;
  }
  return some;
}

}  // namespace

std::shared_ptr<const ContextSlice> context_slice(const MicroBatch& batch,
                                                  const ParallelContext& parallel) {
  const Axis* cp = active_axis(parallel.cp);
  if (!cp) return nullptr;
  return std::make_shared<const ContextSlice>(
      parallel.max_tokens_per_cp_rank > 0
          ? ContextSlice::sized(batch.cu_seqlens, cp->size(), cp->index(),
                                parallel.max_tokens_per_cp_rank)
          : ContextSlice(batch.cu_seqlens, cp->size(), cp->index()));
}

ModelInput own_part(ExecutionContext& ctx, const MicroBatch& batch, const ParallelContext& parallel,
                    int64_t depths) {
  ctx.first_token = batch.first_sample * batch.seq_length;
  ctx.own_tokens = nullptr;
  auto rows = static_cast<int64_t>(batch.tokens.size());
  std::vector<RowRange> tokens = {{0, rows}};
  ModelInput input;
  if (auto slice = context_slice(batch, parallel)) {
    MicroBatch own{.tokens = slice->take(batch.tokens),
                   .targets = slice->take(batch.targets),
                   .positions = slice->take(batch.positions),
                   .cu_seqlens = slice->bounds()};
    input = to_device(ctx, own);
    input.cp_slice = slice;
    if (auto padded = padded_positions(batch); !padded.empty())
      set_padding(input, slice->take(padded));
    tokens = slice->tokens();
    rows = slice->rows();
  } else {
    input = to_device(ctx, batch);
  }
  set_ahead(input, ctx, batch, depths);
  bool sequence_parallel = parallel.residual_placement() == Placement::S(0);
  int64_t n = parallel.tp ? parallel.tp->size() : 1, place = parallel.tp ? parallel.tp->index() : 0;
  if (sequence_parallel) tokens = rows_of(tokens, rows * place / n, rows * (place + 1) / n);
  if (input.cp_slice || sequence_parallel)
    ctx.own_tokens = std::make_shared<const std::vector<RowRange>>(std::move(tokens));
  return input;
}

}  // namespace mtrain
