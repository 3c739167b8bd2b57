// An attention layer on tensor- and context-parallel ranks against one rank: results, gradients of
// inputs and of learned sinks, with every setting of AttentionOptions, also where ranks share
// key/value heads.
#include <doctest/doctest.h>

#include <mutex>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/attention.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kAttendedTokens = 24, kAttendedWidth = 12, kAttendedHeads = 8;
const std::vector<int32_t> kAttendedBounds = {0, 9, 24};

AttentionOptions options() {
  return {.layout = {kAttendedHeads, 2, 6},
          .init_std = 0.4f,
          .out_init_std = 0.4f,
          .window = 7,
          .scale = 0.3f,
          .cap = 0.8f,
          .dropout = 0.25f,
          .sinks = AttentionSinks::learned};
}

struct Result {
  Values y, d_x, d_sinks;
};

/// The result of one rank's part, which is written to the rows and heads of `all` that it has.
void run_rank(Communicator& world, int tp, int cp, Result& all, std::mutex& writing) {
  Fixture lab(1);
  ExecutionContext& ctx = lab.context();
  ctx.step = 3, ctx.first_token = 48;
  int groups = std::min(tp, 2);
  Mesh mesh(world, MeshLayout({{"cp", cp}, {"groups", groups}, {"copies", tp / groups}}));
  ParallelContext parallel{.tp = &mesh.joint({"groups", "copies"}),
                           .cp = cp > 1 ? &mesh["cp"] : nullptr,
                           .kv_copies = tp > groups ? &mesh["copies"] : nullptr};
  ParamList list;
  BuildSettings settings{.ctx = ctx, .parameters = list, .parallel = &parallel};
  Attention attention(Scope(settings) / "attn", {"embed", kAttendedWidth}, options());
  list.allocate_gradients(ctx);
  list.clear_gradients();
  ContextSlice slice(kAttendedBounds, cp, mesh["cp"].index());
  ModelInput input{.bounds = std::make_shared<const std::vector<int32_t>>(kAttendedBounds)};
  if (cp > 1) input.cp_slice = std::make_shared<const ContextSlice>(slice);
  auto rows_of = [&](std::string_view key) {
    Values whole = random_values(kAttendedTokens * kAttendedWidth, key), mine;
    for (const RowRange& r : slice.tokens())
      mine.insert(mine.end(), whole.begin() + r.first * kAttendedWidth,
                  whole.begin() + (r.first + r.rows) * kAttendedWidth);
    return make(ctx, mine, {slice.rows(), kAttendedWidth}, DType::f32);
  };
  auto caught = std::make_shared<Catcher>();
  Tensor x = rows_of("x");
  x.set_node(caught);
  Tensor y = attention(x, input);
  backward(y, rows_of("dy"));
  Values out = values_of(y), d_x = values_of(caught->grad),
         d_sinks = values_of(list.find("attn.sinks")->main_grad);
  std::lock_guard lock(writing);
  int64_t row = 0;
  for (const RowRange& r : slice.tokens())
    for (int64_t i = 0; i < r.rows * kAttendedWidth; ++i, ++row) {
      auto to = static_cast<size_t>(r.first * kAttendedWidth + i), from = static_cast<size_t>(row);
      all.y[to] = out[from], all.d_x[to] = d_x[from];
    }
  for (size_t h = 0; h < d_sinks.size(); ++h)  // ranks of cp have partial sums
    all.d_sinks[static_cast<size_t>(parallel.tp->index()) * d_sinks.size() + h] += d_sinks[h];
}

Result run(int tp, int cp) {
  Result all{Values(kAttendedTokens * kAttendedWidth), Values(kAttendedTokens * kAttendedWidth),
             Values(kAttendedHeads)};
  std::mutex writing;
  run_ranks(tp * cp, [&](Communicator& world) { run_rank(world, tp, cp, all, writing); });
  return all;
}

TEST_CASE("attention with a window, a cap, sinks and dropout on ranks equals one rank") {
  Result one = run(1, 1);
  for (double d : one.d_sinks) CHECK(d != 0);
  for (auto [tp, cp] : {std::pair{2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}, {1, 3}}) {
    Result many = run(tp, cp);
    INFO("tp ", tp, ", cp ", cp);
    const Bound bound{.sums = 128};
    check_close(many.y, one.y, DType::f32, bound, "y");
    check_close(many.d_x, one.d_x, DType::f32, bound, "d_x");
    check_close(many.d_sinks, one.d_sinks, DType::f32, bound, "d_sinks");
  }
}

}  // namespace
}  // namespace mtrain
