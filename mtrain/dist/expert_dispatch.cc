#include "mtrain/dist/expert_dispatch.h"

#include <numeric>

namespace mtrain {
namespace {

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Tensor ids(ExecutionContext& ctx, const std::vector<int32_t>& values, const Shape& shape) {
  return ctx.from_host<int32_t>(values, shape);
}

/// The map of a permutation: row i of the result is row from[i].
RowMap permutation(ExecutionContext& ctx, const std::vector<int32_t>& from) {
  std::vector<int32_t> to(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    to[static_cast<size_t>(from[i])] = static_cast<int32_t>(i);
  auto rows = static_cast<int64_t>(from.size());
  return {ids(ctx, from, {rows}), ids(ctx, to, {rows, 1})};
}

RowMap inverse(const RowMap& map) {
  int64_t rows = map.from.numel();
  return {map.to.view({rows}), map.from.view({rows, 1})};
}

}  // namespace

ExpertDispatch::ExpertDispatch(ExecutionContext& ctx, const ExpertRanks& ranks,
                               const std::vector<int32_t>& experts, int64_t tokens)
    : ranks_(ranks) {
  MT_CHECK(
      ranks.copies >= 1 && ranks.ranks() % ranks.copies == 0 && ranks.experts % ranks.parts() == 0,
      ranks.experts, " experts on ", ranks.ranks(), " ranks, ", ranks.copies, " ranks per expert");
  plan_sending(ctx, experts, tokens);
}

// Sends rows part by part, the same rows to each copy of a part, ordered by expert and then by
// token.
void ExpertDispatch::plan_sending(ExecutionContext& ctx, const std::vector<int32_t>& experts,
                                  int64_t tokens) {
  int64_t k = tokens > 0 ? static_cast<int64_t>(experts.size()) / tokens : 1,
          here = ranks_.experts_here();
  std::vector<std::vector<int32_t>> slots(
      static_cast<size_t>(ranks_.experts));  // by expert, in the order of tokens
  for (size_t slot = 0; slot < experts.size(); ++slot)
    if (experts[slot] >= 0)
      slots[static_cast<size_t>(experts[slot])].push_back(static_cast<int32_t>(slot));
  std::vector<int32_t> token_of, slot_of,
      to(experts.size() * static_cast<size_t>(ranks_.copies), -1);
  std::vector<int64_t> send, counts;
  for (int64_t rank = 0; rank < ranks_.ranks(); ++rank) {
    int64_t part = rank / ranks_.copies, copy = rank % ranks_.copies,
            before = static_cast<int64_t>(slot_of.size());
    for (int64_t e = part * here; e < (part + 1) * here; ++e) {
      const auto& mine = slots[static_cast<size_t>(e)];
      for (int32_t slot : mine) {
        to[static_cast<size_t>(slot * ranks_.copies + copy)] = static_cast<int32_t>(slot_of.size());
        slot_of.push_back(slot);
        token_of.push_back(slot / static_cast<int32_t>(k));
      }
      counts.push_back(static_cast<int64_t>(mine.size()));
    }
    send.push_back(static_cast<int64_t>(slot_of.size()) - before);
  }
  sent_ = static_cast<int64_t>(slot_of.size());
  map_ = {{ids(ctx, token_of, {sent_}), ids(ctx, to, {tokens, k * ranks_.copies})},
          ids(ctx, slot_of, {sent_}),
          ranks_.copies};
  send_ = std::make_shared<const std::vector<int64_t>>(std::move(send));
  plan_receiving(ctx, exchange_counts(counts, ctx.backend().computes()));
}

/// [ranks, experts here]: the number of rows that each rank sends to each expert of this rank.
std::vector<int64_t> ExpertDispatch::exchange_counts(const std::vector<int64_t>& counts,
                                                     bool peers) const {
  if (ranks_.ranks() == 1 || !peers) return counts;
  std::vector<int64_t> out(counts.size());
  ranks_.group->comm().all_to_all(counts, out);
  return out;
}

// Rows arrive rank by rank and are needed expert by expert.
void ExpertDispatch::plan_receiving(ExecutionContext& ctx, const std::vector<int64_t>& counts) {
  int64_t here = ranks_.experts_here();
  std::vector<int64_t> recv(static_cast<size_t>(ranks_.ranks())), rows(static_cast<size_t>(here));
  for (size_t i = 0; i < counts.size(); ++i) {
    recv[i / static_cast<size_t>(here)] += counts[i];
    rows[i % static_cast<size_t>(here)] += counts[i];
  }
  here_ = total(recv);
  recv_ = std::make_shared<const std::vector<int64_t>>(std::move(recv));
  rows_ = std::make_shared<const std::vector<int64_t>>(std::move(rows));
  if (ranks_.ranks() == 1) return;
  std::vector<int64_t> start(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), start.begin(), int64_t{0});
  std::vector<int32_t> from;
  from.reserve(static_cast<size_t>(here_));
  for (size_t e = 0; e < static_cast<size_t>(here); ++e)
    for (size_t i = e; i < counts.size(); i += static_cast<size_t>(here))
      for (int64_t row = 0; row < counts[i]; ++row)
        from.push_back(static_cast<int32_t>(start[i] + row));
  regroup_ = permutation(ctx, from);
  restore_ = inverse(regroup_);
  there_ = std::make_shared<RowExchange>();
  there_->axis = ranks_.group, there_->send = send_, there_->recv = recv_;
  there_->watch = ranks_.exchange_watch;
  there_->overlap = ranks_.overlap_send;
  there_->during_token_exchange = ranks_.during_token_exchange;
  if (ranks_.overlap_wgrad)
    weights_ = there_->overlapped_gradients = std::make_shared<DeferredGradients>();
}

Tensor ExpertDispatch::send(const Tensor& x) const {
  Tensor rows = gather_rows(x, map_.rows);
  return there_ ? begin_exchange(rows, there_) : rows;
}

Tensor ExpertDispatch::arrive(const Tensor& sent) const {
  return there_ ? gather_rows(end_exchange(sent, there_), regroup_) : sent;
}

Tensor ExpertDispatch::combine(const Tensor& rows, const Tensor& weights,
                               const Tensor& addend) const {
  if (!there_) return combine_rows(rows, weights, map_, addend);
  auto back = std::make_shared<RowExchange>();
  back->axis = ranks_.group, back->send = recv_, back->recv = send_;
  back->what = TokenExchange::combine, back->watch = ranks_.exchange_watch;
  back->during_token_exchange = ranks_.during_token_exchange;
  return combine_rows(end_exchange(begin_exchange(gather_rows(rows, restore_), back), back),
                      weights, map_, addend);
}

}  // namespace mtrain
