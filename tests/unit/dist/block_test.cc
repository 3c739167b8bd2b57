// A block y = x + W2 gelu(W1 norm(x)) laid over ranks in the ways of tensor, sequence and data
// parallelism, against the same ops on one rank: the letters of the residual stream and one
// redistribution at each end of the region are all that differs.
#include <doctest/doctest.h>

#include <cmath>

#include "mtrain/comm/thread_world.h"
#include "mtrain/dist/redistribute.h"
#include "unit/dist/sharded.h"

namespace mtrain {
namespace {

using namespace contract;
using namespace placed;

constexpr int64_t kBlockTokens = 8, kBlockWidth = 12, kMlp = 16;

const Held kX{{kBlockTokens, kBlockWidth}, random_values(kBlockTokens* kBlockWidth, "x")};
const Held kDy{{kBlockTokens, kBlockWidth}, random_values(kBlockTokens* kBlockWidth, "dy")};
const Held kNorm{{kBlockWidth}, random_values(kBlockWidth, "norm")};
const Held kUp{{kMlp, kBlockWidth}, random_values(kMlp* kBlockWidth, "up", 0.3)};
const Held kDown{{kBlockWidth, kMlp}, random_values(kBlockWidth* kMlp, "down", 0.3)};

enum class Way { tensor, sequence, fully_sharded, tensor_without_enter };

/// How each tensor is stored.
struct Stored {
  Placement stream, norm, up, down;
};

Stored stored(Way way) {
  const Placement i = Placement::I(), s0 = Placement::S(0), s1 = Placement::S(1);
  if (way == Way::sequence) return {s0, i, s0, s1};
  if (way == Way::fully_sharded)
    return {s0, s0, s0, s0};  // tokens are the samples here; every parameter is sharded
  return {i, i, s0, s1};
}

/// A parameter with a main gradient, as this rank stores it.
struct BlockWeight {
  BlockWeight(ExecutionContext& ctx, const Held& whole, Placement p, int n, int rank) {
    Held mine = place(whole, p, n, "")[static_cast<size_t>(rank)];
    value = make(ctx, mine.values, mine.shape, DType::f32);
    leaf->grad = ctx.zeros(mine.shape, DType::f32);
    value.set_node(leaf);
  }
  Held gradient() const { return {leaf->grad.shape(), values_of(leaf->grad)}; }
  std::shared_ptr<Leaf> leaf = std::make_shared<Leaf>();
  Tensor value;
};

struct Results {
  ByRank y, dx, norm, up, down;
};

Tensor block(Way way, const Axis& axis, const Tensor& x, const BlockWeight& norm,
             const BlockWeight& up, const BlockWeight& down) {
  const Placement r = Placement::R(), p = Placement::P();
  const Stored s = stored(way);
  if (way == Way::fully_sharded) {
    auto whole = [&](const BlockWeight& w) {
      return redistribute(w.value, axis, Placement::S(0), r);
    };
    return add(x, linear(gelu(linear(rms_norm(x, whole(norm), 1e-5f), whole(up)), GeluKind::erf),
                         whole(down)));
  }
  Tensor weight = way == Way::sequence ? redistribute(norm.value, axis, s.norm, r) : norm.value;
  Tensor h = rms_norm(x, weight, 1e-5f);
  if (way != Way::tensor_without_enter) h = redistribute(h, axis, s.stream, r);
  return add(x, redistribute(linear(gelu(linear(h, up.value), GeluKind::erf), down.value), axis, p,
                             s.stream));
}

Results play_block(Way way, int n) {
  Results out{ByRank(static_cast<size_t>(n)), {}, {}, {}, {}};
  out.dx = out.norm = out.up = out.down = out.y;
  run_ranks(n, [&](Communicator& world) {
    int rank = world.rank();
    auto at = static_cast<size_t>(rank);
    const Stored s = stored(way);
    Fixture lab(1);
    ExecutionContext& ctx = lab.context();
    Mesh mesh(world, MeshLayout({{"axis", n}}));
    BlockWeight norm(ctx, kNorm, s.norm, n, rank), up(ctx, kUp, s.up, n, rank),
        down(ctx, kDown, s.down, n, rank);
    auto held = [&](const Held& whole) { return place(whole, s.stream, n, "")[at]; };
    auto caught = std::make_shared<Catcher>();
    Tensor x = make(ctx, held(kX).values, held(kX).shape, DType::f32);
    x.set_node(caught);
    Tensor y = block(way, mesh["axis"], x, norm, up, down);
    out.y[at] = {y.shape(), values_of(y)};
    backward(y, make(ctx, held(kDy).values, held(kDy).shape, DType::f32));
    out.dx[at] = {caught->grad.shape(), values_of(caught->grad)};
    out.norm[at] = norm.gradient(), out.up[at] = up.gradient(), out.down[at] = down.gradient();
  });
  return out;
}

/// The largest distance of what the ranks hold from the whole placed so.
double distance(const ByRank& held, const Held& whole, Placement p) {
  double most = 0;
  ByRank want = place(whole, p, static_cast<int>(held.size()), "");
  for (size_t rank = 0; rank < held.size(); ++rank) {
    REQUIRE(held[rank].shape == want[rank].shape);
    for (size_t i = 0; i < want[rank].values.size(); ++i)
      most = std::max(most, std::abs(held[rank].values[i] - want[rank].values[i]));
  }
  return most;
}

TEST_CASE("a block over ranks: value and all gradients are those of one rank") {
  Results one = play_block(Way::tensor, 1);
  for (Way way : {Way::tensor, Way::sequence, Way::fully_sharded})
    for (int n : {1, 2, 4}) {
      INFO("way ", static_cast<int>(way), " on ", n, " ranks");
      const Stored s = stored(way);
      Results got = play_block(way, n);
      CHECK(distance(got.y, one.y[0], s.stream) < 2e-6);
      CHECK(distance(got.dx, one.dx[0], s.stream) < 4e-6);
      CHECK(distance(got.norm, one.norm[0], s.norm) < 4e-6);
      CHECK(distance(got.up, one.up[0], s.up) < 4e-6);
      CHECK(distance(got.down, one.down[0], s.down) < 4e-6);
    }
}

TEST_CASE(
    "a block over ranks: a forgotten I -> R leaves the value right and the gradients of what is "
    "before it "
    "wrong") {
  Results one = play_block(Way::tensor, 1), got = play_block(Way::tensor_without_enter, 2);
  CHECK(distance(got.y, one.y[0], Placement::I()) < 2e-6);
  CHECK(distance(got.up, one.up[0], Placement::S(0)) < 4e-6);
  CHECK(distance(got.dx, one.dx[0], Placement::I()) > 0.1);
  CHECK(distance(got.norm, one.norm[0], Placement::I()) > 0.1);
}

}  // namespace
}  // namespace mtrain
