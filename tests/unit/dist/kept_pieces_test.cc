// Inputs of recomputed blocks that ranks keep in pieces: the same bits for any size and dtype, and
// the memory of one piece between forward and backward.
#include "mtrain/dist/kept_pieces.h"

#include <doctest/doctest.h>

#include "mtrain/comm/thread_world.h"
#include "unit/dist/sharded.h"

namespace mtrain {
namespace {

using namespace contract;

struct PiecesOutcome {
  Values y, dx;
};

/// Two blocks, each recomputed: y = gelu(gelu(x)).
PiecesOutcome play_pieces(const Axis* axis, const Shape& shape, DType dtype) {
  Fixture lab(1);
  auto caught = std::make_shared<Catcher>();
  Tensor x = make(lab.context(), random_values(shape.numel(), "x"), shape, dtype);
  x.set_node(caught);
  auto block = [](const Tensor& in) { return gelu(in, GeluKind::erf); };
  KeepInput keep = axis ? keep_in_pieces(*axis) : KeepInput();
  Tensor y = recompute(block, recompute(block, x, keep), keep);
  PiecesOutcome out{.y = values_of(y), .dx = {}};
  backward(y, make(lab.context(), random_values(shape.numel(), "dy"), shape, dtype));
  out.dx = values_of(caught->grad);
  return out;
}

}  // namespace

TEST_CASE("kept pieces: values and gradients of recomputed blocks have the same bits") {
  for (int ranks : {2, 3, 4})
    for (DType dtype : {DType::f32, DType::bf16})
      for (const Shape& shape : {Shape{16, 8}, Shape{7, 9}, Shape{1, 5}}) {
        CAPTURE(ranks);
        CAPTURE(shape.numel());
        const PiecesOutcome whole = play_pieces(nullptr, shape, dtype);
        run_ranks(ranks, [&](Communicator& world) {
          Mesh mesh(world, MeshLayout({{"tp", ranks}}));
          const PiecesOutcome pieces = play_pieces(&mesh["tp"], shape, dtype);
          MT_CHECK(pieces.y == whole.y && pieces.dx == whole.dx, "other bits on rank ",
                   world.rank());
        });
      }
}

TEST_CASE("kept pieces: a rank keeps its piece alone, and gathers the whole once") {
  constexpr int kRanks = 4;
  constexpr int64_t kRows = 64, kWidth = 32;
  run_ranks(kRanks, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"tp", kRanks}}));
    Fixture lab(1);
    auto held = [&] { return static_cast<int64_t>(lab.context().memory().held().total()); };
    const auto before = held();
    std::function<Tensor()> stored;
    {
      Tensor x = lab.context().zeros({kRows, kWidth}, DType::f32);
      x.set_placement(Placement::I());
      stored = keep_in_pieces(mesh["tp"])(x);
    }
    MT_CHECK_EQ(held() - before, kRows * kWidth * 4 / kRanks);
    Tensor whole = stored();
    MT_CHECK(whole.shape() == Shape({kRows, kWidth}) && whole.placement() == Placement::I(),
             "another tensor came back");
    MT_CHECK_EQ(mesh["tp"].comm().counters()[CommKind::all_gather].calls, 1);
  });
}

}  // namespace mtrain
