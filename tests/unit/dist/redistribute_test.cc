// Every edge of the table on 1, 2 and 4 ranks, for every dtype and dim: forwards and backwards
// against the plain definition, the transpose identity, and the bytes that theory asks for.
#include "mtrain/dist/redistribute.h"

#include <doctest/doctest.h>

#include "mtrain/comm/thread_world.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/tensor/planning.h"
#include "unit/dist/sharded.h"

namespace mtrain {
namespace {

using namespace contract;
using namespace placed;

struct Edge {
  Placement from, to;
};

struct Setting {
  int n;
  DType dtype;
  Shape shape;  // of the whole
  Edge edge;
};

struct Outcome {
  ByRank x, y, dy, dx;  // dx stays empty on one rank
  std::vector<int64_t> sent_forward, sent_backward;
};

void play(Communicator& world, const Setting& s, Outcome& out) {
  auto rank = static_cast<size_t>(world.rank());
  Fixture lab(1);
  Mesh mesh(world, MeshLayout({{"tp", s.n}}));
  const Axis& axis = mesh["tp"];
  auto sent = [&] { return axis.comm().counters().total().bytes_sent; };
  auto caught = std::make_shared<Catcher>();
  Tensor x = make(lab.context(), out.x[rank].values, out.x[rank].shape, s.dtype);
  x.set_node(caught);
  Tensor y = redistribute(x, axis, s.edge.from, s.edge.to);
  out.y[rank] = {y.shape(), values_of(y)};
  out.sent_forward[rank] = sent();
  if (y.node() == caught) return;  // nothing to do
  Tensor dy = make(lab.context(), out.dy[rank].values, out.dy[rank].shape, s.dtype);
  backward(y, dy);
  out.dx[rank] = {caught->grad.shape(), values_of(caught->grad)};
  out.sent_backward[rank] = sent() - out.sent_forward[rank];
  if (values_of(dy) != out.dy[rank].values)
    throw Error(ErrorClass::bug, "backward wrote over its gradient");
  if (values_of(x) != out.x[rank].values)
    throw Error(ErrorClass::bug, "forward wrote over its input");
}

// What one rank sends for a transfer whose whole tensor has so many bytes.
int64_t theory(Transfer transfer, int64_t bytes, int n) {
  switch (transfer) {
    case Transfer::none:
    case Transfer::slice:
      return 0;
    case Transfer::all_reduce:
      return 2 * bytes * (n - 1) / n;
    case Transfer::all_gather:      // my n-th to each of the others
    case Transfer::reduce_scatter:  // theirs of mine to each of the others
      return bytes / n * (n - 1);
    case Transfer::all_to_all:
      return bytes / n / n * (n - 1);  // of my n-th, all but what stays
  }
  return -1;
}

void check_setting(const Setting& s) {
  auto size = static_cast<size_t>(s.n);
  Held whole = whole_numbers(s.shape, "x"), gradient = whole_numbers(s.shape, "dy");
  Outcome o{place(whole, s.edge.from, s.n, "parts of x"),
            ByRank(size),
            place(gradient, dual(s.edge.to), s.n, "parts of dy"),
            ByRank(size),
            std::vector<int64_t>(size),
            std::vector<int64_t>(size)};
  run_ranks(s.n, [&](Communicator& world) { play(world, s, o); });
  INFO(s.edge.from, " -> ", s.edge.to, " of ", s.shape, " ", name(s.dtype), " on ", s.n);
  CHECK(is_placed(o.y, whole, s.edge.to));
  bool nothing = s.n == 1 || s.edge.from == s.edge.to;
  if (nothing) return;
  CHECK(is_placed(o.dx, gradient, dual(s.edge.from)));
  // <dy, A x> = <A^T dy, x>
  CHECK(pairing(o.y, o.dy, s.edge.to) == pairing(o.x, o.dx, s.edge.from));
  Transition row = transition(s.edge.from, s.edge.to);
  int64_t bytes = s.shape.numel() * static_cast<int64_t>(size_of(s.dtype));
  for (size_t rank = 0; rank < size; ++rank) {
    CHECK(o.sent_forward[rank] == theory(row.forward, bytes, s.n));
    CHECK(o.sent_backward[rank] == theory(row.backward, bytes, s.n));
  }
}

std::vector<Edge> edges(const Shape& shape, int n) {
  std::vector<Placement> placements = {Placement::R(), Placement::I(), Placement::P()};
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d] % n == 0) placements.push_back(Placement::S(d));
  std::vector<Edge> out;
  for (Placement from : placements)
    for (Placement to : placements)
      if (refusal(from, to).empty()) out.push_back({from, to});
  return out;
}

TEST_CASE("redistribute: every edge of the table, every dim and dtype, on 1, 2 and 4 ranks") {
  int checked = 0;
  for (int n : {1, 2, 4})
    for (DType dtype : kDTypes)
      for (const Shape& shape : {Shape{8}, Shape{8, 12}, Shape{4, 3, 8}, Shape{12, 4, 4}})
        for (const Edge& edge : edges(shape, n)) {
          check_setting({n, dtype, shape, edge});
          ++checked;
        }
  // Edges with s dims that can be sharded: 5 without S, 4 with each, and s * s between them. On one
  // rank s is the rank.
  auto count = [](int s) { return 5 + 4 * s + s * s; };
  CHECK(checked == 3 * (count(1) + count(2) + count(3) + count(3) +
                        2 * (count(1) + count(2) + count(2) + count(3))));
}

std::string refused(int n, const std::function<void(ExecutionContext&, const Axis&)>& call) {
  std::string message;
  run_ranks(n, [&](Communicator& world) {
    Fixture lab(1);
    Mesh mesh(world, MeshLayout({{"tp", n}}));
    try {
      call(lab.context(), mesh["tp"]);
    } catch (const Error& e) {
      if (world.rank() == 0) message = e.message();
    }
  });
  return message;
}

TEST_CASE("redistribute: what cannot be done is refused before anybody waits") {
  CHECK(refused(4, [](ExecutionContext& ctx, const Axis& axis) {
          redistribute(ctx.zeros({6, 8}, DType::f32), axis, Placement::I(), Placement::S(0));
        }) == "dim 0 of [6, 8] cannot be divided into 4 equal pieces for the ranks of axis 'tp'");
  CHECK(refused(2, [](ExecutionContext& ctx, const Axis& axis) {
          redistribute(ctx.zeros({8, 5}, DType::f32), axis, Placement::P(), Placement::S(1));
        }) == "dim 1 of [8, 5] cannot be divided into 2 equal pieces for the ranks of axis 'tp'");
  CHECK(refused(2, [](ExecutionContext& ctx, const Axis& axis) {
          redistribute(ctx.zeros({4, 5}, DType::f32), axis, Placement::S(0), Placement::S(1));
        }) == "dim 1 of [4, 5] cannot be divided into 2 equal pieces for the ranks of axis 'tp'");
  // On one rank too: a model is written there.
  for (int n : {1, 2}) {
    CHECK(refused(n, [](ExecutionContext& ctx, const Axis& axis) {
            redistribute(ctx.zeros({4}, DType::f32), axis, Placement::R(), Placement::I());
          }) == "a tensor cannot be redistributed from R to I");
    CHECK(refused(n, [](ExecutionContext& ctx, const Axis& axis) {
            redistribute(ctx.zeros({4}, DType::f32), axis, Placement::S(1), Placement::R());
          }).find("S(1) of [4]") != std::string::npos);
    CHECK(refused(n, [](ExecutionContext& ctx, const Axis& axis) {
            redistribute(ctx.zeros({4}, DType::i32), axis, Placement::I(), Placement::R());
          }).find("[4] int32") != std::string::npos);
    CHECK(refused(n, [](ExecutionContext& ctx, const Axis& axis) {
            redistribute(ctx.zeros({4, 4}, DType::f32).slice(1, 0, 2), axis, Placement::P(),
                         Placement::I());
          }).find("[4, 2] fp32") != std::string::npos);
  }
}

TEST_CASE("redistribute: one rank gets its own tensor back, without a node") {
  Fixture lab(1);
  auto self = make_self_communicator();
  Mesh mesh(*self, MeshLayout({{"tp", 1}}));
  Tensor x = lab.context().zeros({2, 3}, DType::f32);
  for (const Edge& edge : edges(x.shape(), 1)) {
    Tensor y = redistribute(x, mesh["tp"], edge.from, edge.to);
    CHECK(y.raw() == x.raw());
    CHECK(y.node() == nullptr);
  }
}

TEST_CASE("redistribute: a plan of the memory takes the same and waits for nobody") {
  auto real = make_cpu_backend(1);
  auto planning = make_planning_backend(*real);
  size_t calls = 0;
  std::vector<std::string> shapes;
  run_ranks(2, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"tp", 2}}));
    if (world.rank() == 1) return;  // the rehearsal is each rank's own
    ExecutionContext ctx(*planning);
    for (const Edge& edge : edges({4, 6}, 2)) {
      Tensor y = redistribute(ctx.empty({4, 6}, DType::bf16), mesh["tp"], edge.from, edge.to);
      shapes.push_back(cat(edge.from, " -> ", edge.to, " ", y.shape()));
    }
    calls = static_cast<size_t>(mesh["tp"].comm().counters().total().calls);
  });
  CHECK(calls == 0);
  CHECK(std::count(shapes.begin(), shapes.end(), "S(0) -> R [8, 6]") == 1);
  CHECK(std::count(shapes.begin(), shapes.end(), "S(0) -> S(1) [8, 3]") == 1);
  CHECK(std::count(shapes.begin(), shapes.end(), "P -> S(1) [4, 3]") == 1);
}

}  // namespace
}  // namespace mtrain
