#include "mtrain/nn/moe_sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/nn/token_share.h"

namespace mtrain {
namespace {

constexpr double kTolerance = 1e-4, kLeastSum = 1e-8;
constexpr int kMostTurns = 1000;  // ends where logits are such that d1 does not settle

}  // namespace

std::vector<double> sinkhorn(std::span<const double> logits, int64_t experts) {
  const auto width = static_cast<size_t>(experts), tokens = logits.size() / width;
  std::vector<double> p(logits.size()), d0(tokens), d1(width, 1), sums(width);
  for (size_t t = 0; t < tokens; ++t) {
    const auto row = logits.subspan(t * width, width);
    const double top = *std::max_element(row.begin(), row.end());
    for (size_t e = 0; e < width; ++e) p[t * width + e] = std::exp(row[e] - top);
  }
  double change = 1;
  for (int turn = 0; turn < kMostTurns && change > kTolerance; ++turn) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t t = 0; t < tokens; ++t) {
      const double* row = p.data() + t * width;
      const double sum = std::inner_product(row, row + width, d1.begin(), 0.0);
      d0[t] = 1 / (static_cast<double>(tokens) * (sum + kLeastSum));
      for (size_t e = 0; e < width; ++e) sums[e] += d0[t] * row[e];
    }
    change = 0;
    for (size_t e = 0; e < width; ++e) {
      const double next = 1 / (static_cast<double>(width) * (sums[e] + kLeastSum));
      change += std::fabs(next - d1[e]) / static_cast<double>(width);
      d1[e] = next;
    }
  }
  for (size_t t = 0; t < tokens; ++t)
    for (size_t e = 0; e < width; ++e) p[t * width + e] *= d0[t] * d1[e];
  return p;
}

std::vector<double> sinkhorn_assignment(const Tensor& logits, std::span<const int32_t> padding,
                                        const ParallelContext& parallel) {
  ExecutionContext& ctx = logits.context();
  const int64_t rows = logits.size(0), experts = logits.size(1);
  const auto width = static_cast<size_t>(experts);
  const std::vector<double> values = host_values(logits);
  std::vector<double> mine;
  std::vector<int64_t> tokens, places;  // the rank's tokens without padding, and their rows
  const std::vector<int64_t> token_of = tokens_of_rows(ctx, rows);
  for (size_t t = 0; t < static_cast<size_t>(rows); ++t) {
    if (!padding.empty() && padding[t] != 0) continue;
    tokens.push_back(token_of[t]);
    places.push_back(static_cast<int64_t>(t));
    mine.insert(mine.end(), values.begin() + static_cast<ptrdiff_t>(t * width),
                values.begin() + static_cast<ptrdiff_t>((t + 1) * width));
  }
  const std::vector<int64_t> all = gather_micro_batch(ctx, parallel, tokens);
  const std::vector<double> shared = gather_micro_batch(ctx, parallel, std::move(mine));
  // In the order of tokens, so that the sums have the same bits on every rank and in every layout.
  std::vector<size_t> order(all.size()), place_of(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a] < all[b]; });
  std::vector<double> sorted;
  sorted.reserve(shared.size());
  for (size_t i : order)
    sorted.insert(sorted.end(), shared.begin() + static_cast<ptrdiff_t>(i * width),
                  shared.begin() + static_cast<ptrdiff_t>((i + 1) * width));
  const std::vector<double> whole = sinkhorn(sorted, experts);
  std::vector<double> out(values.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto found = std::lower_bound(order.begin(), order.end(), tokens[i],
                                  [&](size_t a, int64_t token) { return all[a] < token; });
    const auto from = static_cast<size_t>(found - order.begin()) * width;
    std::copy_n(whole.begin() + static_cast<ptrdiff_t>(from), width,
                out.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(places[i]) * width));
  }
  return out;
}

}  // namespace mtrain
