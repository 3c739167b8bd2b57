// Norms of heads, limits and gates: what is between the projections of attention and its products.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "contract/harness.h"
#include "mtrain/autograd/projection_ops.h"

namespace mtrain::contract {
namespace {

using reference::Heads;
using Rows = HeadNormForm::Rows;

constexpr float kHeadEps = 1e-5f;

struct NormRow {
  Heads heads;
  int64_t tokens;
  Rows rows;
  bool layer = false, bias = false;
  bool joined = false;  // the heads are half of those that are normalized together
  float offset = 0;     // added to the weights
};

HeadLayout projection_layout(const Heads& h) { return {h.heads, h.groups, h.head_dim}; }

/// The queries or the keys of a projection, in order.
struct Part {
  Part(const NormRow& r, bool key) : row(r), keys(key) {
    const Heads& h = row.heads;
    for (int64_t t = 0; t < row.tokens; ++t)
      for (int64_t g = 0; g < h.groups; ++g)
        for (int64_t slot = 0; slot < (keys ? 1 : h.queries()); ++slot)
          for (int64_t i = 0; i < h.head_dim; ++i)
            places.push_back(static_cast<size_t>(h.at(t, g, keys ? h.queries() : slot) + i));
  }
  int64_t heads() const { return keys ? row.heads.groups : row.heads.heads; }
  int64_t weights() const { return (row.rows == Rows::head ? 1 : heads()) * row.heads.head_dim; }
  Shape weight_shape() const {
    return row.rows == Rows::own_head ? Shape{heads(), row.heads.head_dim} : Shape{weights()};
  }
  int64_t cols() const { return (row.rows == Rows::all_heads ? heads() : 1) * row.heads.head_dim; }
  Values taken(const Values& qkv) const {
    Values out;
    for (size_t at : places) out.push_back(qkv[at]);
    return out;
  }
  /// Rows of the norm; those of both halves where they are joined.
  Values in_rows(const Values& part) const {
    if (!row.joined) return part;
    Values out;
    const auto width = static_cast<std::ptrdiff_t>(cols());
    for (auto at = part.begin(); at != part.end(); at += width)
      for (int twice = 0; twice < 2; ++twice) out.insert(out.end(), at, at + width);
    return out;
  }
  Values first_half(const Values& rows) const {
    if (!row.joined) return rows;
    Values out;
    const auto width = static_cast<std::ptrdiff_t>(cols());
    for (auto at = rows.begin(); at != rows.end(); at += 2 * width)
      out.insert(out.end(), at, at + width);
    return out;
  }
  int64_t row_size() const { return cols() * (row.joined ? 2 : 1); }
  int64_t row_count() const { return static_cast<int64_t>(places.size()) / cols(); }
  Values ones() const { return Values(static_cast<size_t>(row_size()), 1.0); }

  /// The rows with mean 0 and deviation 1.
  Values unit(const Values& part) const {
    Values x = in_rows(part);
    return first_half(row.layer
                          ? reference::layer_norm(x, ones(), {}, row_count(), row_size(), kHeadEps)
                          : reference::rms_norm(x, ones(), row_count(), row_size(), kHeadEps));
  }
  Values unit_backward(const Values& d_unit, const Values& part) const {
    Values x = in_rows(part), dy = in_rows(d_unit);
    auto grads =
        row.layer ? reference::layer_norm_backward(dy, x, ones(), row_count(), row_size(), kHeadEps)
                  : reference::rms_norm_backward(dy, x, ones(), row_count(), row_size(), kHeadEps);
    return first_half(grads[0]);
  }

  NormRow row;
  bool keys;
  std::vector<size_t> places;
};

/// Writes the normalized part over qkv.
void normalize(const Part& part, const Values& x, const Values& w, const Values& b, Values& qkv) {
  const Values unit = part.unit(part.taken(x));
  for (size_t i = 0; i < unit.size(); ++i)
    qkv[part.places[i]] =
        unit[i] * (w[i % w.size()] + part.row.offset) + (b.empty() ? 0 : b[i % w.size()]);
}

/// Writes the gradient of the part over that of qkv, and appends those of its weights.
void differentiate(const Part& part, const Values& dy, const Values& x, const Values& w, bool bias,
                   std::vector<Values>& grads) {
  Values own = part.taken(x), d_own = part.taken(dy), unit = part.unit(own), d_unit = d_own;
  Values dw(w.size()), db(w.size());
  for (size_t i = 0; i < unit.size(); ++i) {
    dw[i % w.size()] += d_own[i] * unit[i];
    db[i % w.size()] += d_own[i];
    d_unit[i] *= w[i % w.size()] + part.row.offset;
  }
  const Values dx = part.unit_backward(d_unit, own);
  for (size_t i = 0; i < dx.size(); ++i) grads[0][part.places[i]] = dx[i];
  grads.push_back(dw);
  if (bias) grads.push_back(db);
}

HeadNormForm form_of(const NormRow& row) {
  HeadNormForm form{.rows = row.rows, .layer = row.layer, .eps = kHeadEps, .offset = row.offset};
  if (!row.joined) return form;
  form.whole = {row.heads.heads * 2, row.heads.groups * 2, row.heads.head_dim};
  form.join = [](const Tensor& sums) {  // another rank has the same values
    ExecutionContext& ctx = sums.context();
    Tensor theirs = ctx.empty(sums.shape(), sums.dtype());
    ctx.copy(theirs, sums);
    ctx.accumulate(sums, theirs);
  };
  return form;
}

std::string name_of(const NormRow& row) {
  const char* kRows[] = {"head", "own_head", "all_heads"};
  return cat("head_norm ", kRows[static_cast<int>(row.rows)], row.layer ? " layer" : " rms",
             row.bias ? " + bias" : "", row.offset > 0 ? " + offset" : "",
             row.joined ? " joined" : "", ", ", row.tokens, " tokens, ", row.heads.heads, "/",
             row.heads.groups, " x ", row.heads.head_dim);
}

Case norm_case(const NormRow& row) {
  Case c{.name = name_of(row), .out = {row.tokens, row.heads.width()}};
  const Part q(row, false), k(row, true);
  c.inputs = {{"qkv", c.out, random_values(c.out.numel(), "qkv")}};
  auto add = [&](const char* name, const Part& part) {
    c.inputs.push_back({name, part.weight_shape(), random_values(part.weights(), name), true});
    if (row.bias)
      c.inputs.push_back({cat(name, "b"), part.weight_shape(),
                          random_values(part.weights(), cat(name, "b")), true});
  };
  add("q", q), add("k", k);
  const size_t at = row.bias ? 3 : 2;  // the keys' weight among the inputs
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    HeadNormWeights weights{t[1], row.bias ? t[2] : Tensor(), t[at],
                            row.bias ? t[at + 1] : Tensor()};
    return head_norm(std::move(t[0]), projection_layout(row.heads), form_of(row), weights);
  };
  c.forward = [=](const std::vector<Values>& v) {
    Values out = v[0];
    normalize(q, v[0], v[1], row.bias ? v[2] : Values(), out);
    normalize(k, v[0], v[at], row.bias ? v[at + 1] : Values(), out);
    return out;
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    std::vector<Values> grads = {dy};
    differentiate(q, dy, v[0], v[1], row.bias, grads);
    differentiate(k, dy, v[0], v[at], row.bias, grads);
    return grads;
  };
  c.remove = [](KernelTable& kernels) { kernels.head_norm = nullptr; };
  return c;
}

const std::vector<std::pair<Heads, int64_t>> kShapes = {
    {{1, 1, 3}, 1}, {{4, 2, 8}, 3},   {{3, 3, 17}, 17}, {{8, 1, 20}, 33},
    {{6, 3, 6}, 9}, {{4, 4, 16}, 65}, {{4, 1, 33}, 5},  {{2, 2, 128}, 70}};

TEST_CASE("head_norm: values and gradients") {
  Figures figures("head_norm");
  for (const auto& [heads, tokens] : kShapes) {
    for (Rows rows : {Rows::head, Rows::own_head}) {
      check(norm_case({heads, tokens, rows}), figures);
      check(norm_case({heads, tokens, rows, true}), figures);
      check(norm_case({heads, tokens, rows, true, true}), figures);
      check(norm_case({heads, tokens, rows, false, false, false, 1}), figures);
    }
    check(norm_case({heads, tokens, Rows::all_heads}), figures);
    check(norm_case({heads, tokens, Rows::all_heads, false, false, true}), figures);
  }
}

TEST_CASE("head_norm: in place when nobody else holds the tensor, and a copy otherwise") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{2, 1, 6};
  for (DType dtype : kDTypes) {
    Values before = round_to(random_values(3 * heads.width(), "qkv"), dtype);
    Tensor alone = make(ctx, before, {3, heads.width()}, dtype),
           held = make(ctx, before, {3, heads.width()}, dtype);
    Tensor w = make(ctx, Values(6, 1.5), {6}, dtype);
    void* place = alone.raw();
    Tensor a = head_norm(std::move(alone), projection_layout(heads), {}, {w, {}, w, {}});
    Tensor b = head_norm(Tensor(held), projection_layout(heads), {}, {w, {}, w, {}});
    CHECK(a.raw() == place);
    CHECK(b.raw() != held.raw());
    CHECK(values_of(held) == before);
    CHECK(values_of(a) == values_of(b));
  }
}

TEST_CASE("head_norm: weights of 0 have a gradient, and zeros stay finite") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{2, 1, 4};
  for (Rows rows : {Rows::head, Rows::all_heads}) {
    const int64_t q = rows == Rows::head ? 4 : 8;
    Tensor zero_q = ctx.zeros({q}, DType::f32), zero_k = ctx.zeros({4}, DType::f32);
    auto probe = std::make_shared<Catcher>();
    zero_q.set_node(probe);
    Tensor x = make(ctx, random_values(3 * heads.width(), "x"), {3, heads.width()}, DType::f32);
    Tensor y =
        head_norm(std::move(x), projection_layout(heads), {.rows = rows}, {zero_q, {}, zero_k, {}});
    backward(y,
             make(ctx, Values(static_cast<size_t>(3 * heads.width()), 1.0), y.shape(), DType::f32));
    for (double g : values_of(probe->grad)) CHECK(g != 0);
    Tensor w_q = make(ctx, Values(static_cast<size_t>(q), 1.0), {q}, DType::f32),
           w_k = make(ctx, Values(4, 1.0), {4}, DType::f32);
    Tensor zeros = ctx.zeros({3, heads.width()}, DType::f32);
    CHECK(values_of(head_norm(std::move(zeros), projection_layout(heads), {.rows = rows},
                              {w_q, {}, w_k, {}})) ==
          Values(static_cast<size_t>(3 * heads.width()), 0.0));
  }
}

TEST_CASE("head_norm: weights that do not fit are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{4, 2, 4};
  auto refused = [&](const HeadNormForm& form, int64_t q, int64_t k, bool bias) {
    Tensor b = bias ? ctx.zeros({q}, DType::f32) : Tensor();
    CHECK_THROWS_AS(
        head_norm(ctx.zeros({2, heads.width()}, DType::f32), projection_layout(heads), form,
                  {ctx.zeros({q}, DType::f32), b, ctx.zeros({k}, DType::f32), {}}),
        Error);
  };
  refused({}, 5, 4, false);
  refused({}, 4, 8, false);
  refused({}, 4, 4, true);  // an RMSNorm with a bias
  refused({.rows = Rows::own_head}, 4, 8, false);
  refused({.rows = Rows::all_heads}, 16, 16, false);
  refused({.rows = Rows::all_heads, .layer = true}, 16, 8, false);
}

constexpr double kClampLimit = 0.75;

Case clamp_case(int64_t count) {
  Case c{.name = cat("clamp ", count), .out = {count}};
  Values x = random_values(count, "x");
  for (double& v : x)  // differences near the limit would be of two slopes
    if (std::fabs(std::fabs(v) - kClampLimit) < 0.02) v *= 0.9;
  c.inputs = {{"x", {count}, x}};
  c.op = [](ExecutionContext&, std::vector<Tensor>& t) {
    return clamp(std::move(t[0]), static_cast<float>(kClampLimit));
  };
  c.forward = [](const std::vector<Values>& v) {
    Values y = v[0];
    for (double& value : y) value = std::fmin(std::fmax(value, -kClampLimit), kClampLimit);
    return y;
  };
  c.backward = [](const std::vector<Values>& v, const Values& dy) {
    Values dx = dy;
    for (size_t i = 0; i < dx.size(); ++i)
      if (std::fabs(v[0][i]) > kClampLimit) dx[i] = 0;
    return std::vector<Values>{dx};
  };
  return c;
}

TEST_CASE("clamp: values and gradients") {
  Figures figures("clamp");
  for (int64_t count : {1, 7, 8, 9, 16, 17, 33, 129, 20011}) check(clamp_case(count), figures);
}

TEST_CASE("clamp: the limits themselves pass gradients, NaN stays NaN and passes none") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (DType dtype : kDTypes) {
    Tensor x = make(ctx, {0.75, -0.75, 0.76, -0.76, nan, inf, -inf, 0, -0.5}, {9}, dtype);
    auto probe = std::make_shared<Catcher>();
    x.set_node(probe);
    Tensor y = clamp(std::move(x), 0.75f);
    Values values = values_of(y);
    CHECK(std::isnan(values[4]));
    values[4] = 0;
    CHECK(values == Values{0.75, -0.75, 0.75, -0.75, 0, 0.75, -0.75, 0, -0.5});
    backward(y, make(ctx, Values(9, 2.0), {9}, dtype));
    CHECK(values_of(probe->grad) == Values{2, 2, 0, 0, 0, 0, 0, 2, 2});
  }
}

Case gate_case(int64_t rows, int64_t cols, double scale) {
  Case c{.name = cat("sigmoid_mul ", rows, " x ", cols, " scale ", scale), .out = {rows, cols}};
  c.inputs = {{"gate", {rows, cols}, random_values(rows * cols, "gate", scale)},
              {"x", {rows, cols}, random_values(rows * cols, "x")}};
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  c.op = [](ExecutionContext&, std::vector<Tensor>& t) { return sigmoid_mul(t[0], t[1]); };
  c.forward = [=](const std::vector<Values>& v) {
    Values y = v[1];
    for (size_t i = 0; i < y.size(); ++i) y[i] *= sigmoid(v[0][i]);
    return y;
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    Values d_gate = dy, dx = dy;
    for (size_t i = 0; i < dy.size(); ++i) {
      double s = sigmoid(v[0][i]);
      d_gate[i] *= v[1][i] * s * (1 - s), dx[i] *= s;
    }
    return std::vector<Values>{d_gate, dx};
  };
  c.remove = [](KernelTable& kernels) { kernels.sigmoid_mul = nullptr; };
  return c;
}

TEST_CASE("sigmoid_mul: values and gradients") {
  Figures figures("sigmoid_mul");
  for (int64_t rows : {1, 3, 17})
    for (int64_t cols : kOddSizes) check(gate_case(rows, cols, 1), figures);
  check(gate_case(9, 65, 20), figures);
}

}  // namespace
}  // namespace mtrain::contract
