// The way of tokens to experts and back: who gets what, what comes back, and what it costs.
#include "mtrain/dist/expert_dispatch.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kTokens = 12, kWidth = 5, kExperts = 8, kTopK = 2;  // tokens of each rank

/// Of token t of a rank: equal load, other experts on each rank, and with `drop` a choice that is
/// dropped now and then.
std::vector<int32_t> choices(int rank, bool drop) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < kTokens * kTopK; ++i)
    out.push_back(drop && i % 7 == 3 ? -1 : static_cast<int32_t>((i * 3 + rank) % kExperts));
  return out;
}

/// A token's row says whose it is.
Values stream(int rank) {
  Values x;
  for (int64_t i = 0; i < kTokens * kWidth; ++i)
    x.push_back(100.0 * rank + static_cast<double>(i / kWidth) +
                0.125 * static_cast<double>(i % kWidth));
  return x;
}

/// Calls f(run, ranks, group's communicator) on `size` ranks with `copies` of each expert.
template <class F>
void on_ranks(int size, int64_t copies, F&& f) {
  run_ranks(size, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"group", size}}));
    Fixture lab(1);
    f(lab.context(), ExpertRanks{size > 1 ? &mesh["group"] : nullptr, copies, kExperts},
      mesh["group"].comm());
  });
}

TEST_CASE(
    "expert dispatch: every expert gets its tokens' rows, rank by rank in the order of tokens") {
  for (auto [size, copies] : {std::pair<int, int64_t>{1, 1}, {2, 1}, {4, 1}, {4, 2}, {2, 2}})
    for (bool drop : {false, true})
      on_ranks(
          size, copies,
          [&, size = size](ExecutionContext& ctx, const ExpertRanks& ranks, Communicator& comm) {
            ExpertDispatch way(ctx, ranks, choices(comm.rank(), drop), kTokens);
            Values rows = values_of(
                       way.dispatch(make(ctx, stream(comm.rank()), {kTokens, kWidth}, DType::f32))),
                   want;
            int64_t first = comm.rank() / ranks.copies * ranks.experts_here();
            REQUIRE(static_cast<int64_t>(way.rows()->size()) == ranks.experts_here());
            for (int64_t e = 0; e < ranks.experts_here(); ++e) {
              int64_t count = 0;
              for (int from = 0; from < size; ++from) {
                auto chosen = choices(from, drop);
                Values x = stream(from);
                for (size_t i = 0; i < chosen.size(); ++i) {
                  if (chosen[i] != first + e) continue;
                  auto row = x.begin() + static_cast<int64_t>(i) / kTopK * kWidth;
                  want.insert(want.end(), row, row + kWidth);
                  ++count;
                }
              }
              CHECK((*way.rows())[static_cast<size_t>(e)] == count);
            }
            CHECK(rows == want);
          });
}

TEST_CASE(
    "expert dispatch: what comes back is weighted and added up, copies included; gradients take "
    "the way back") {
  for (auto [size, copies] : {std::pair<int, int64_t>{1, 1}, {2, 1}, {4, 2}})
    on_ranks(size, copies,
             [&](ExecutionContext& ctx, const ExpertRanks& ranks, Communicator& comm) {
               auto chosen = choices(comm.rank(), true);
               Values x = stream(comm.rank()), weights, want(x.size()), d_x(x.size());
               for (size_t i = 0; i < chosen.size(); ++i)
                 weights.push_back(0.25 * static_cast<double>(1 + i % 3));
               auto target = std::make_shared<Catcher>();
               Tensor in = make(ctx, x, {kTokens, kWidth}, DType::f32);
               in.set_node(target);
               ExpertDispatch way(ctx, ranks, chosen, kTokens);
               Tensor y =
                   way.combine(way.dispatch(in), make(ctx, weights, {kTokens, kTopK}, DType::f32));
               auto each = static_cast<double>(
                   ranks.copies);  // an expert that gives back what it gets, once per copy
               for (size_t i = 0; i < chosen.size(); ++i)
                 for (size_t c = 0; chosen[i] >= 0 && c < kWidth; ++c) {
                   size_t at = i / kTopK * kWidth + c;
                   want[at] += each * weights[i] * x[at];
                   d_x[at] += each * weights[i];
                 }
               check_close(values_of(y), want, DType::f32, {}, "value");
               backward(y, make(ctx, Values(x.size(), 1.0), y.shape(), DType::f32));
               check_close(values_of(target->grad), d_x, DType::f32, {}, "gradient");
             });
}

TEST_CASE("expert dispatch: bytes sent are those of theory, and backward sends as many again") {
  for (auto [size, copies] : {std::pair<int, int64_t>{2, 1}, {4, 1}, {4, 2}, {2, 2}})
    on_ranks(size, copies,
             [&, size = size](ExecutionContext& ctx, const ExpertRanks& ranks, Communicator& comm) {
               ExpertDispatch way(ctx, ranks, choices(comm.rank(), false), kTokens);
               auto sent = [&] { return comm.counters()[CommKind::all_to_all].bytes_sent; };
               int64_t before = sent();
               auto target = std::make_shared<Catcher>();
               Tensor in = make(ctx, stream(comm.rank()), {kTokens, kWidth}, DType::f32);
               in.set_node(target);
               Tensor y = way.combine(way.dispatch(in), make(ctx, Values(kTokens * kTopK, 0.5),
                                                             {kTokens, kTopK}, DType::f32));
               int64_t forward = sent() - before;
               backward(y, make(ctx, Values(static_cast<size_t>(kTokens * kWidth), 1.0), y.shape(),
                                DType::f32));
               // Every rank's tokens go to each expert equally often here.
               int64_t rows = kTokens * kTopK * ranks.copies * (size - 1) / size;
               int64_t total = comm.all_reduce_value(forward);
               CHECK(total == size * 2 * rows * kWidth * 4);
               CHECK(comm.all_reduce_value(sent() - before) == 2 * total);
             });
}

}  // namespace
}  // namespace mtrain
