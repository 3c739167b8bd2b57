#include "mtrain/dist/expert_dispatch.h"

#include <algorithm>
#include <numeric>

#include "mtrain/autograd/ops.h"
#include "mtrain/dist/redistribute.h"

namespace mtrain {
namespace {

Tensor ids(ExecutionContext& ctx, const std::vector<int32_t>& values, const Shape& shape) {
  return ctx.from_host<int32_t>(values, shape);
}

/// Row i of the result is row from[i] of `rows` rows; padding (see `pads`) has no gradient.
RowMap selection(ExecutionContext& ctx, const std::vector<int32_t>& from,
                 const std::vector<char>& pads, int64_t rows) {
  std::vector<int32_t> to(static_cast<size_t>(rows), -1);
  for (size_t i = 0; i < from.size(); ++i)
    if (!pads[i]) to[static_cast<size_t>(from[i])] = static_cast<int32_t>(i);
  return {ids(ctx, from, {static_cast<int64_t>(from.size())}), ids(ctx, to, {rows, 1})};
}

/// From the rows of selection() back to those that were selected.
RowMap return_of(ExecutionContext& ctx, const std::vector<int32_t>& from,
                 const std::vector<char>& pads, int64_t rows) {
  std::vector<int32_t> back(static_cast<size_t>(rows)), to(from.size(), -1);
  for (size_t i = 0; i < from.size(); ++i) {
    if (pads[i]) continue;
    back[static_cast<size_t>(from[i])] = static_cast<int32_t>(i);
    to[i] = from[i];
  }
  return {ids(ctx, back, {rows}), ids(ctx, to, {static_cast<int64_t>(from.size()), 1})};
}

/// Notes the start of an exchange, in forward and backward.
struct Note {
  TokenExchange what = TokenExchange::dispatch;
  std::shared_ptr<ExchangeWatch> watch;

  MaybePlacement placed(const Tensor& x) const { return x.placement(); }
  void call(bool backward) const {
    if (watch && *watch) (*watch)(what, backward);
  }
  Tensor forward(ExecutionContext&, const Tensor& x) {
    call(false);
    return x;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    call(true);
    g[0].give(ctx, dy);
  }
};

}  // namespace

ExpertDispatch::ExpertDispatch(ExecutionContext& ctx, const ExpertRanks& ranks,
                               const std::vector<int32_t>& experts, int64_t tokens, int64_t padded)
    : ranks_(ranks), padded_(padded) {
  MT_CHECK(
      ranks.copies >= 1 && ranks.ranks() % ranks.copies == 0 && ranks.experts % ranks.parts() == 0,
      ranks.experts, " experts on ", ranks.ranks(), " ranks, ", ranks.copies, " ranks per expert");
  if (gathers())
    plan_own_rows(ctx, experts, tokens);
  else
    plan_sending(ctx, experts, tokens);
}

/// The experts of the tokens of all ranks. A dry run has no peers: all choose alike.
std::vector<int32_t> ExpertDispatch::experts_of_all(ExecutionContext& ctx,
                                                    const std::vector<int32_t>& experts,
                                                    int64_t tokens) const {
  std::vector<int32_t> all;
  if (!ctx.backend().computes()) {
    for (int64_t r = 0; r < ranks_.ranks(); ++r)
      all.insert(all.end(), experts.begin(), experts.end());
    return all;
  }
  Communicator& comm = ranks_.group->comm();
  std::vector<int64_t> counts(static_cast<size_t>(ranks_.ranks()));
  comm.all_gather(std::span<const int64_t>(&tokens, 1), std::span(counts));
  MT_USER_CHECK(std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == tokens; }),
                ErrorClass::config,
                cat("ranks that share experts have different numbers of tokens, from ",
                    *std::min_element(counts.begin(), counts.end()), " to ",
                    *std::max_element(counts.begin(), counts.end())),
                "set model.moe.dispatcher=alltoall");
  all.resize(experts.size() * counts.size());
  if (all.empty()) return all;
  const auto bytes = static_cast<int64_t>(experts.size() * sizeof(int32_t));
  comm.all_gather({experts.data(), bytes, DType::u8},
                  {all.data(), bytes * ranks_.ranks(), DType::u8});
  return all;
}

// Rows of this rank's experts among the tokens of all ranks, ordered by expert and then by token.
void ExpertDispatch::plan_own_rows(ExecutionContext& ctx, const std::vector<int32_t>& own,
                                   int64_t own_tokens) {
  const std::vector<int32_t> experts = experts_of_all(ctx, own, own_tokens);
  const int64_t tokens = own_tokens * ranks_.ranks(), here = ranks_.experts_here(),
                first = ranks_.group->index() / ranks_.copies * here,
                k = tokens > 0 ? static_cast<int64_t>(experts.size()) / tokens : 1;
  std::vector<std::vector<int32_t>> slots(static_cast<size_t>(here));
  for (size_t slot = 0; slot < experts.size(); ++slot)
    if (const int64_t e = experts[slot] - first; experts[slot] >= 0 && e >= 0 && e < here)
      slots[static_cast<size_t>(e)].push_back(static_cast<int32_t>(slot));
  std::vector<int32_t> token_of, slot_of, to(experts.size(), -1);
  std::vector<int64_t> rows;
  for (const auto& mine : slots) {
    for (int32_t slot : mine) {
      to[static_cast<size_t>(slot)] = static_cast<int32_t>(slot_of.size());
      slot_of.push_back(slot);
      token_of.push_back(slot / static_cast<int32_t>(k));
    }
    rows.push_back(static_cast<int64_t>(mine.size()));
  }
  sent_ = here_ = static_cast<int64_t>(slot_of.size());
  map_ = {{ids(ctx, token_of, {here_}), ids(ctx, to, {tokens, k})}, ids(ctx, slot_of, {here_}), 1};
  plan_groups(ctx, rows, {});
}

/// `from`: the arrived rows, grouped by expert; empty: they arrive in this order.
void ExpertDispatch::plan_groups(ExecutionContext& ctx, const std::vector<int64_t>& rows,
                                 std::vector<int32_t> from) {
  // A rank without any row has none to copy.
  const bool pads = padded_ > 0 && here_ > 0;
  rows_ = std::make_shared<const std::vector<int64_t>>(
      pads ? std::vector<int64_t>(rows.size(), padded_) : rows);
  if (from.empty() && !pads) return;
  if (from.empty()) {
    from.resize(static_cast<size_t>(here_));
    std::iota(from.begin(), from.end(), 0);
  }
  std::vector<int32_t> filled;
  std::vector<char> added;
  auto next = from.begin();
  for (int64_t count : rows) {
    MT_CHECK(!pads || count <= padded_, count, " rows of an expert padded to ", padded_);
    // A copy of a row of the same expert leaves the scale of low-precision products as it is.
    const int32_t copy = count > 0 ? *next : from.front();
    filled.insert(filled.end(), next, next + count);
    next += count;
    added.resize(filled.size(), 0);
    if (pads) filled.resize(filled.size() + static_cast<size_t>(padded_ - count), copy);
    added.resize(filled.size(), 1);
  }
  regroup_ = selection(ctx, filled, added, here_);
  restore_ = return_of(ctx, filled, added, here_);
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
  here_ = total_rows(recv);
  recv_ = std::make_shared<const std::vector<int64_t>>(std::move(recv));
  if (ranks_.ranks() == 1) return plan_groups(ctx, rows, {});
  std::vector<int64_t> start(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), start.begin(), int64_t{0});
  std::vector<int32_t> from;
  from.reserve(static_cast<size_t>(here_));
  for (size_t e = 0; e < static_cast<size_t>(here); ++e)
    for (size_t i = e; i < counts.size(); i += static_cast<size_t>(here))
      for (int64_t row = 0; row < counts[i]; ++row)
        from.push_back(static_cast<int32_t>(start[i] + row));
  plan_groups(ctx, rows, std::move(from));
  there_ = std::make_shared<RowExchange>();
  there_->axis = ranks_.group, there_->send = send_, there_->recv = recv_;
  there_->watch = ranks_.exchange_watch;
  there_->overlap = ranks_.overlap_send;
  there_->during_token_exchange = ranks_.during_token_exchange;
  if (ranks_.overlap_wgrad)
    weights_ = there_->overlapped_gradients = std::make_shared<DeferredGradients>();
}

Tensor ExpertDispatch::send(const Tensor& x) const {
  if (gathers()) {
    Tensor all = redistribute(apply(Note{TokenExchange::dispatch, ranks_.exchange_watch}, x),
                              *ranks_.group, Placement::S(0), Placement::R());
    return gather_rows(all, map_.rows);
  }
  Tensor rows = gather_rows(x, map_.rows);
  return there_ ? begin_exchange(rows, there_) : rows;
}

Tensor ExpertDispatch::arrive(const Tensor& sent) const {
  Tensor rows = there_ ? end_exchange(sent, there_) : sent;
  return regroup_.from.defined() ? gather_rows(rows, regroup_) : rows;
}

Tensor ExpertDispatch::combine(const Tensor& grouped, const Tensor& weights,
                               const Tensor& addend) const {
  Tensor rows = restore_.from.defined() ? gather_rows(grouped, restore_) : grouped;
  if (gathers()) {
    // Each rank has the results of its own experts, for the tokens of all ranks.
    Tensor all = redistribute(weights, *ranks_.group, Placement::S(0), Placement::R());
    Tensor y =
        redistribute(combine_rows(rows, all, map_), *ranks_.group, Placement::P(), Placement::S(0));
    y = apply(Note{TokenExchange::combine, ranks_.exchange_watch}, y);
    return addend.defined() ? add(y, addend) : y;
  }
  if (!there_) return combine_rows(rows, weights, map_, addend);
  auto back = std::make_shared<RowExchange>();
  back->axis = ranks_.group, back->send = recv_, back->recv = send_;
  back->what = TokenExchange::combine, back->watch = ranks_.exchange_watch;
  back->during_token_exchange = ranks_.during_token_exchange;
  return combine_rows(end_exchange(begin_exchange(rows, back), back), weights, map_, addend);
}

}  // namespace mtrain
