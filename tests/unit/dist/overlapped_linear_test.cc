// Linear layers that overlap their transfer, against one collective and one product: the same bits
// forwards and backwards, the same bytes.
#include "mtrain/dist/overlapped_linear.h"

#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/autograd/ops.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/dist/redistribute.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kPiece = 32, kLinearWidth = 64, kOutputs = 48,
                  kMore = 80;  // rows of a rank's piece; columns

struct LinearWeight {
  LinearWeight(ExecutionContext& ctx, const Shape& shape, DType dtype, const std::string& key)
      : value(make(ctx, random_values(shape.numel(), key, 0.3), shape, dtype)) {
    leaf->grad = ctx.zeros(shape, DType::f32);
    value.set_node(leaf);
  }
  std::shared_ptr<Leaf> leaf = std::make_shared<Leaf>();
  Tensor value;
};

/// Everything that comes out of one rank's layers, and what it sent.
struct Result {
  std::vector<Values> values;
  int64_t sent = 0;
};

Tensor random(ExecutionContext& ctx, const Shape& shape, DType dtype, const std::string& key) {
  return make(ctx, random_values(shape.numel(), key), shape, dtype);
}

/// Two layers that read the gathered stream, one with a bias; their results are added up as
/// silu_mul does.
Result column(Fixture& lab, const Axis& axis, DType dtype, bool overlapped, bool late) {
  ExecutionContext& ctx = lab.context();
  std::string rank = std::to_string(axis.index());
  LinearWeight a(ctx, {kOutputs, kLinearWidth}, dtype, "a" + rank),
      b(ctx, {kOutputs, kLinearWidth}, dtype, "b" + rank);
  LinearWeight bias(ctx, {kOutputs}, DType::f32, "bias" + rank);
  auto caught = std::make_shared<Catcher>();
  Tensor x = random(ctx, {kPiece, kLinearWidth}, dtype, "x" + rank);
  x.set_node(caught);
  int64_t before = axis.comm().counters().total().bytes_sent;
  const LinearWeights layers[] = {{a.value, {}}, {b.value, bias.value}};
  Tensor first, second;
  if (overlapped) {
    GatheredProducts out = gathered_linear(x, axis, layers);
    first = out.y[0], second = out.y[1];
  } else {
    Tensor whole = redistribute(x, axis, Placement::S(0), Placement::R());
    first = linear(whole, a.value), second = linear(whole, b.value, bias.value);
  }
  Tensor y = silu_mul(first, second);
  Result out{{values_of(first), values_of(second)}};
  DeferredGradients weights;
  backward(y, random(ctx, y.shape(), dtype, "dy" + rank), late ? &weights : nullptr);
  weights.run();
  for (const Tensor& t : {caught->grad, a.leaf->grad, b.leaf->grad, bias.leaf->grad})
    out.values.push_back(values_of(t));
  out.sent = axis.comm().counters().total().bytes_sent - before;
  return out;
}

Result row(Fixture& lab, const Axis& axis, DType dtype, bool overlapped, bool late) {
  ExecutionContext& ctx = lab.context();
  std::string rank = std::to_string(axis.index());
  LinearWeight w(ctx, {kOutputs, kMore}, dtype, "w" + rank);
  auto caught = std::make_shared<Catcher>();
  Tensor x = random(ctx, {kPiece * axis.size(), kMore}, dtype, "x" + rank);
  x.set_node(caught);
  int64_t before = axis.comm().counters().total().bytes_sent;
  Tensor y = overlapped ? linear_scattered(x, axis, w.value)
                        : redistribute(linear(x, w.value), axis, Placement::P(), Placement::S(0));
  Result out{{values_of(y)}};
  DeferredGradients weights;
  backward(y, random(ctx, y.shape(), dtype, "dy" + rank), late ? &weights : nullptr);
  weights.run();
  for (const Tensor& t : {caught->grad, w.leaf->grad}) out.values.push_back(values_of(t));
  out.sent = axis.comm().counters().total().bytes_sent - before;
  return out;
}

template <class Layers>
void check_same(Layers layers) {
  for (int n : {2, 3, 4})
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (bool late : {false, true}) {
        INFO(n, " ranks, ", std::string(name(dtype)), late ? ", weights later" : "");
        std::vector<Result> plain(static_cast<size_t>(n)), hidden(plain.size());
        run_ranks(n, [&](Communicator& world) {
          auto at = static_cast<size_t>(world.rank());
          Mesh mesh(world, MeshLayout({{"tp", n}}));
          Fixture lab(1);
          plain[at] = layers(lab, mesh["tp"], dtype, false, late);
          hidden[at] = layers(lab, mesh["tp"], dtype, true, late);
        });
        for (size_t r = 0; r < plain.size(); ++r) {
          REQUIRE(hidden[r].values.size() == plain[r].values.size());
          for (size_t i = 0; i < plain[r].values.size(); ++i)
            CHECK(hidden[r].values[i] == plain[r].values[i]);
          CHECK(hidden[r].sent == plain[r].sent);
          CHECK(plain[r].sent > 0);
        }
      }
}

TEST_CASE("overlapped linear layers: with the gathering of the stream, the same bits and bytes") {
  REQUIRE(rows_may_be_split(kPiece, kOutputs, kLinearWidth));
  check_same(column);
}

TEST_CASE("overlapped linear layers: before the sum over ranks, the same bits and bytes") {
  REQUIRE(rows_may_be_split(kPiece, kOutputs, kMore));
  check_same(row);
}

TEST_CASE("overlapped linear layers: without a tape") {
  run_ranks(2, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"tp", 2}}));
    Fixture lab(1);
    ExecutionContext& ctx = lab.context();
    GradMode off(ctx, false);
    Tensor x = random(ctx, {kPiece, kLinearWidth}, DType::f32, "x" + std::to_string(world.rank()));
    LinearWeight w(ctx, {kOutputs, kLinearWidth}, DType::f32, "w");
    const LinearWeights layers[] = {{w.value, {}}};
    Tensor y = gathered_linear(x, mesh["tp"], layers).y[0];
    bool same =
        values_of(y) ==
        values_of(linear(redistribute(x, mesh["tp"], Placement::S(0), Placement::R()), w.value));
    if (!same) throw Error(ErrorClass::bug, "another product");
  });
}

// What the layers rely on: from this size on a product's rows may be split anywhere. The backend
// has several ways to compute a product, and one must not be chosen by the number of rows.
TEST_CASE("products: rows do not depend on how many there are") {
  Fixture lab(1);
  ExecutionContext& ctx = lab.context();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t rows : {64, 96, 256})
      for (auto [n, k] :
           {std::pair<int64_t, int64_t>{32, 64}, {96, 64}, {64, 1024}, {33, 65}, {16, 3000}}) {
        INFO(std::string(name(dtype)), " ", rows, " x ", n, " x ", k);
        if (!rows_may_be_split(rows / 2, n, k)) continue;
        Tensor x = random(ctx, {rows, k}, dtype, "x"), w = random(ctx, {n, k}, dtype, "w");
        Values whole = values_of(linear(x, w)),
               in_parts = values_of(linear(x.slice(0, 0, rows / 2), w));
        Values rest = values_of(linear(x.slice(0, rows / 2, rows), w));
        in_parts.insert(in_parts.end(), rest.begin(), rest.end());
        CHECK(in_parts == whole);
      }
}

}  // namespace
}  // namespace mtrain
