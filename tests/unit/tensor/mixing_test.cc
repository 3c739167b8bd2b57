// The rules of mixing, derived: ranks are played through in double, and a rule is whatever comes
// out right forwards and backwards. The table must hold that and nothing else.
#include "mtrain/tensor/mixing.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <set>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

constexpr int kRanks = 2, kT = 4, kD = 6, kN = 8;

struct Matrix {
  int rows = 0, columns = 0;
  std::vector<double> v;
  double& at(int r, int c) { return v[static_cast<size_t>(r * columns + c)]; }
  double at(int r, int c) const { return v[static_cast<size_t>(r * columns + c)]; }
  bool same_shape(const Matrix& o) const { return rows == o.rows && columns == o.columns; }
};

Matrix zeros(int rows, int columns) {
  return {rows, columns, std::vector<double>(static_cast<size_t>(rows * columns))};
}

Matrix random_matrix(int rows, int columns, std::mt19937& rng) {
  Matrix m = zeros(rows, columns);
  for (double& x : m.v) x = std::normal_distribution<double>()(rng);
  return m;
}

Matrix piece(const Matrix& m, int dim, int rank) {
  if (m.rows == 1) dim = 1;  // a vector's dim 0
  int rows = dim == 0 ? m.rows / kRanks : m.rows,
      columns = dim == 1 ? m.columns / kRanks : m.columns;
  Matrix out = zeros(rows, columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      out.at(r, c) = m.at(r + (dim == 0 ? rank * rows : 0), c + (dim == 1 ? rank * columns : 0));
  return out;
}

using Locals = std::vector<Matrix>;  // by rank

/// What the ranks hold of a tensor placed so. Summands are random.
Locals place(const Matrix& whole, Placement p, std::mt19937& rng) {
  Locals out(kRanks, whole);
  if (p.letter() == Placement::Letter::S)
    for (int rank = 0; rank < kRanks; ++rank)
      out[static_cast<size_t>(rank)] = piece(whole, p.dim(), rank);
  if (p.letter() == Placement::Letter::P)
    for (size_t rank = 1; rank < kRanks; ++rank) {
      out[rank] = random_matrix(whole.rows, whole.columns, rng);
      for (size_t i = 0; i < whole.v.size(); ++i) out[0].v[i] -= out[rank].v[i];
    }
  return out;
}

bool close(const Matrix& a, const Matrix& b) {
  if (!a.same_shape(b)) return false;
  for (size_t i = 0; i < a.v.size(); ++i)
    if (std::abs(a.v[i] - b.v[i]) > 1e-9) return false;
  return true;
}

/// True when the ranks' tensors are `whole` placed so.
bool is_placed(const Locals& locals, const Matrix& whole, Placement p) {
  if (p.letter() == Placement::Letter::P) {
    Matrix sum = locals[0];
    for (size_t rank = 1; rank < kRanks; ++rank) {
      if (!locals[rank].same_shape(sum)) return false;
      for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += locals[rank].v[i];
    }
    return close(sum, whole);
  }
  bool split = p.letter() == Placement::Letter::S;
  for (int rank = 0; rank < kRanks; ++rank)
    if (!close(locals[static_cast<size_t>(rank)], split ? piece(whole, p.dim(), rank) : whole))
      return false;
  return true;
}

using Pair = std::array<Matrix, 2>;

struct Op {
  PlacementRule kind;
  std::array<int, 4> shapes;  // rows and columns of both inputs
  std::function<std::optional<Matrix>(const Matrix&, const Matrix&)>
      forward;  // nothing: the shapes do not fit
  std::function<Pair(const Matrix&, const Matrix&, const Matrix& dy)> backward;
};

std::optional<Matrix> matmul_nt(const Matrix& x, const Matrix& w) {
  if (x.columns != w.columns) return std::nullopt;
  Matrix y = zeros(x.rows, w.rows);
  for (int t = 0; t < x.rows; ++t)
    for (int n = 0; n < w.rows; ++n)
      for (int d = 0; d < x.columns; ++d) y.at(t, n) += x.at(t, d) * w.at(n, d);
  return y;
}

Pair matmul_nt_backward(const Matrix& x, const Matrix& w, const Matrix& dy) {
  Pair g = {zeros(x.rows, x.columns), zeros(w.rows, w.columns)};
  for (int t = 0; t < x.rows; ++t)
    for (int n = 0; n < w.rows; ++n)
      for (int d = 0; d < x.columns; ++d) {
        g[0].at(t, d) += dy.at(t, n) * w.at(n, d);
        g[1].at(n, d) += dy.at(t, n) * x.at(t, d);
      }
  return g;
}

template <class F>
auto elementwise(F f) {
  return [f](const Matrix& a, const Matrix& b) -> std::optional<Matrix> {
    if (!a.same_shape(b)) return std::nullopt;
    Matrix y = a;
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = f(a.v[i], b.v[i]);
    return y;
  };
}

template <class Da, class Db>
auto elementwise_backward(Da da, Db db) {
  return [=](const Matrix& a, const Matrix& b, const Matrix& dy) {
    Pair g = {a, b};
    for (size_t i = 0; i < a.v.size(); ++i) {
      g[0].v[i] = dy.v[i] * da(a.v[i], b.v[i]);
      g[1].v[i] = dy.v[i] * db(a.v[i], b.v[i]);
    }
    return g;
  };
}

double row_scale(const Matrix& x, int t) {  // 1 / the root mean square of a row
  double sum = 0;
  for (int d = 0; d < x.columns; ++d) sum += x.at(t, d) * x.at(t, d);
  return 1 / std::sqrt(sum / x.columns);
}

std::optional<Matrix> rms_norm(const Matrix& x, const Matrix& w) {  // w[1, D]
  if (w.columns != x.columns || w.rows != 1) return std::nullopt;
  Matrix y = x;
  for (int t = 0; t < x.rows; ++t)
    for (int d = 0; d < x.columns; ++d) y.at(t, d) = w.at(0, d) * x.at(t, d) * row_scale(x, t);
  return y;
}

Pair rms_norm_backward(const Matrix& x, const Matrix& w, const Matrix& dy) {
  Pair g = {zeros(x.rows, x.columns), zeros(1, x.columns)};
  for (int t = 0; t < x.rows; ++t) {
    double r = row_scale(x, t), dot = 0;
    for (int d = 0; d < x.columns; ++d) dot += dy.at(t, d) * w.at(0, d) * x.at(t, d);
    for (int d = 0; d < x.columns; ++d) {
      g[0].at(t, d) = r * dy.at(t, d) * w.at(0, d) - r * r * r * dot / x.columns * x.at(t, d);
      g[1].at(0, d) += dy.at(t, d) * x.at(t, d) * r;
    }
  }
  return g;
}

std::optional<Matrix> add_row(const Matrix& x, const Matrix& b) {  // b[1, D]
  if (b.columns != x.columns || b.rows != 1) return std::nullopt;
  Matrix y = x;
  for (int t = 0; t < x.rows; ++t)
    for (int d = 0; d < x.columns; ++d) y.at(t, d) += b.at(0, d);
  return y;
}

Pair add_row_backward(const Matrix& x, const Matrix&, const Matrix& dy) {
  Pair g = {dy, zeros(1, x.columns)};
  for (int t = 0; t < x.rows; ++t)
    for (int d = 0; d < x.columns; ++d) g[1].at(0, d) += dy.at(t, d);
  return g;
}

std::vector<Op> ops() {
  auto one = [](double, double) { return 1.0; };
  auto first = [](double a, double) { return a; };
  auto second = [](double, double b) { return b; };
  return {
      {PlacementRule::linear, {kT, kD, kN, kD}, matmul_nt, matmul_nt_backward},
      {PlacementRule::add,
       {kT, kD, kT, kD},
       elementwise(std::plus<>()),
       elementwise_backward(one, one)},
      {PlacementRule::bias, {kT, kD, 1, kD}, add_row, add_row_backward},
      {PlacementRule::multiply,
       {kT, kD, kT, kD},
       elementwise(std::multiplies<>()),
       elementwise_backward(second, first)},
      {PlacementRule::pointwise,
       {kT, kD, kT, kD},
       elementwise([](double a, double b) { return std::exp(a) * std::tanh(b); }),
       elementwise_backward(
           [](double a, double b) { return std::exp(a) * std::tanh(b); },
           [](double a, double b) { return std::exp(a) / std::pow(std::cosh(b), 2); })},
      {PlacementRule::norm, {kT, kD, 1, kD}, rms_norm, rms_norm_backward},
  };
}

// Whether the ranks, each working on what it holds, come to the right result and the right
// gradients.
bool comes_out_right(const Op& op, Placement a, Placement b, Placement result) {
  std::mt19937 rng(7);
  Matrix x = random_matrix(op.shapes[0], op.shapes[1], rng),
         w = random_matrix(op.shapes[2], op.shapes[3], rng);
  Matrix y = *op.forward(x, w), dy = random_matrix(y.rows, y.columns, rng);
  Pair wanted = op.backward(x, w, dy);
  Locals xs = place(x, a, rng), ws = place(w, b, rng), dys = place(dy, dual(result), rng), ys, dxs,
         dws;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    std::optional<Matrix> local = op.forward(xs[rank], ws[rank]);
    if (!local || !local->same_shape(dys[rank])) return false;
    ys.push_back(*local);
    Pair g = op.backward(xs[rank], ws[rank], dys[rank]);
    dxs.push_back(g[0]), dws.push_back(g[1]);
  }
  return is_placed(ys, y, result) && is_placed(dxs, wanted[0], dual(a)) &&
         is_placed(dws, wanted[1], dual(b));
}

std::string rule_text(PlacementRule op, Placement a, Placement b, Placement result) {
  return cat(name(op), "(", a, ", ", b, ") -> ", result);
}

const Placement kAll[] = {Placement::R(), Placement::I(), Placement::S(0), Placement::S(1),
                          Placement::P()};

std::vector<Placement> placements_of(int rows) {
  std::vector<Placement> out(kAll, kAll + 5);
  if (rows == 1) std::erase(out, Placement::S(1));
  return out;
}

TEST_CASE("mixing: backwards of the played ops against finite differences") {
  std::mt19937 rng(3);
  for (const Op& op : ops()) {
    INFO(name(op.kind));
    Pair in = {random_matrix(op.shapes[0], op.shapes[1], rng),
               random_matrix(op.shapes[2], op.shapes[3], rng)};
    Matrix y = *op.forward(in[0], in[1]), dy = random_matrix(y.rows, y.columns, rng);
    Pair g = op.backward(in[0], in[1], dy);
    auto loss = [&] {
      double sum = 0;
      Matrix now = *op.forward(in[0], in[1]);
      for (size_t i = 0; i < dy.v.size(); ++i) sum += now.v[i] * dy.v[i];
      return sum;
    };
    for (size_t k = 0; k < 2; ++k)
      for (size_t i = 0; i < in[k].v.size(); ++i) {
        double before = in[k].v[i];
        in[k].v[i] = before + 1e-5;
        double up = loss();
        in[k].v[i] = before - 1e-5;
        double down = loss();
        in[k].v[i] = before;
        CHECK(g[k].v[i] == doctest::Approx((up - down) / 2e-5).epsilon(1e-6));
      }
  }
}

TEST_CASE("mixing: the table is what comes out right, and nothing else") {
  std::set<std::string> right, table;
  for (const Op& op : ops())
    for (Placement a : placements_of(op.shapes[0]))
      for (Placement b : placements_of(op.shapes[2])) {
        int results = 0;
        for (Placement result : kAll)
          if (comes_out_right(op, a, b, result))
            right.insert(rule_text(op.kind, a, b, result)), ++results;
        CHECK(results <= 1);  // the result's letter is no choice
        const Placement inputs[] = {a, b};
        try {
          table.insert(rule_text(op.kind, a, b, mix(op.kind, inputs)));
        } catch (const Error& e) {
          CHECK(e.error_class() == ErrorClass::bug);
          CHECK(e.message().find(cat(name(op.kind), " cannot mix (", a, ", ", b, "): ")) == 0);
          bool explained = e.message().find("redistribute") != std::string::npos ||
                           e.message().find("gather") != std::string::npos;
          CHECK(explained);
        }
      }
  CHECK(join({right.begin(), right.end()}, "\n") == join({table.begin(), table.end()}, "\n"));
  for (const MixRule& rule : mix_rules())
    CHECK(right.contains(rule_text(rule.op, rule.inputs[0], rule.inputs[1], rule.result)));
}

TEST_CASE("mixing: pointwise takes any number of inputs, placed alike") {
  const Placement three[] = {Placement::S(2), Placement::S(2), Placement::S(2)},
                  one[] = {Placement::I()};
  CHECK(mix(PlacementRule::pointwise, three) == Placement::S(2));
  CHECK(mix(PlacementRule::pointwise, one) == Placement::I());
  const Placement partial[] = {Placement::P()},
                  odd[] = {Placement::R(), Placement::S(0), Placement::R()};
  CHECK_THROWS_WITH_AS(mix(PlacementRule::pointwise, partial),
                       doctest::Contains("pointwise cannot mix (P)"), Error);
  CHECK_THROWS_WITH_AS(mix(PlacementRule::pointwise, odd),
                       doctest::Contains("pointwise cannot mix (R, S(0), R)"), Error);
  CHECK_THROWS_AS(mix(PlacementRule::linear, one), Error);
}

TEST_CASE("mixing: a forgotten reduction is refused with the fix") {
  const Placement skipped_enter[] = {Placement::I(), Placement::S(0)},
                  skipped_leave[] = {Placement::P(), Placement::I()};
  CHECK_THROWS_WITH_AS(mix(PlacementRule::linear, skipped_enter),
                       doctest::Contains("redistribute I -> R"), Error);
  CHECK_THROWS_WITH_AS(mix(PlacementRule::add, skipped_leave), doctest::Contains("redistribute"),
                       Error);
}

}  // namespace
}  // namespace mtrain
