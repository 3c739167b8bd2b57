// Norm, clipping, loss scale, and what an optimizer is handed.
#include "mtrain/optim/optimizer_state.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "contract/harness.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

using namespace contract;

TEST_CASE("clip_factor: brings the norm to the bound and leaves smaller ones alone") {
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(4, 1) == doctest::Approx(1 / 4.000001).epsilon(1e-12));
  CHECK(clip_factor(4, 0) == 1);
  CHECK(clip_factor(1e30, 2) == doctest::Approx(2e-30).epsilon(1e-6));
  CHECK(clip_factor(std::numeric_limits<double>::infinity(), 1) == 0);
}

// Plain gradient descent that keeps the sum of gradients and notes what it was given.
class Descent final : public Optimizer {
 public:
  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    return {"sum"};
  }
  void update(const ParamUpdate& u) override {
    seen[std::string(u.param.name)] = {u.lr, u.weight_decay, static_cast<double>(u.grad_scale),
                                       static_cast<double>(u.step)};
    Values p = values_of(u.master), g = values_of(u.grad), s = values_of(u.state[0]);
    for (size_t i = 0; i < p.size(); ++i) {
      s[i] += g[i] * static_cast<double>(u.grad_scale);
      p[i] -= u.lr * (g[i] * static_cast<double>(u.grad_scale) + u.weight_decay * p[i]);
    }
    u.ctx.copy(u.state[0], make(u.ctx, s, u.master.shape(), DType::f32));
    u.ctx.copy(u.master, make(u.ctx, p, u.master.shape(), DType::f32));
    if (u.value.defined()) u.ctx.copy(u.value, u.master);
  }
  std::map<std::string, std::vector<double>> seen;
};

// The same with temporary tensors.
class Roomy final : public Optimizer {
 public:
  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override { return {}; }
  std::vector<Shape> workspace(const ParamInfo&, const LogicalMatrix& matrix) const override {
    return {{matrix.cols, 1 << 20}, {matrix.num_rows(), 1 << 19}};
  }
  void update(const ParamUpdate& u) override {
    for (const LogicalMatrix& matrix : u.matrices) {
      std::vector<Tensor> held;
      for (const Shape& shape : workspace(u.param, matrix))
        held.push_back(u.ctx.empty(shape, DType::f32));
    }
  }
};

struct State {
  explicit State(DType dtype) : dtype(dtype) {
    list.allocate_gradients(lab.context());
    state.emplace(lab.context(), list, descent);
    lab.context().copy(list.gradient_buffer(),
                       make(lab.context(), {3, 0, 0, 4, 12}, {5}, DType::f32));
  }
  DType dtype;
  contract::Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list, .dtype = dtype};
  Parameter& w = Scope(settings).param("w", {{"rows", 2}, {"cols", 2}}, Init::ones(), true);
  Parameter& b = Scope(settings).param("b", {{"cols", 1}}, Init::ones(), false);
  Descent descent;
  std::optional<OptimizerState> state;
};

TEST_CASE("optimizer state: a rehearsed update takes the memory of a real one") {
  size_t peaks[2];
  for (bool real : {false, true}) {
    contract::Fixture lab;
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    Scope scope(settings);
    scope.param("w", {{"rows", 2}, {"cols", 2}}, Init::ones(), true);
    scope.param("experts", {{"experts", 3}, {"rows", 2}, {"cols", 2}}, Init::ones(), true);
    list.allocate_gradients(lab.context());
    Roomy optimizer;
    OptimizerState state(lab.context(), list, optimizer);
    if (real)
      state.update({.lr = 1, .grad_norm = 1, .step = 1});
    else
      state.rehearse_update();
    peaks[real] = lab.context().memory().peak();
  }
  CHECK(peaks[0] == peaks[1]);
  CHECK(peaks[0] > 3u << 22);  // 8 MiB and 4 MiB
  CHECK(peaks[0] < 4u << 22);  // not of all experts at once
}

TEST_CASE("optimizer state: norm over all parameters, in units of the loss") {
  State f(DType::f32);
  CHECK(f.state->grad_norm(1) == 13);
  CHECK(f.state->grad_norm(0.25) == 3.25);
  f.lab.context().copy(f.list.gradient_buffer(),
                       make(f.lab.context(), {1e20, 0, 0, 1e20, 0}, {5}, DType::f32));
  CHECK(f.state->grad_norm(1) ==
        doctest::Approx(std::sqrt(2.0) * 1e20));  // no overflow of a float sum
  f.lab.context().copy(f.list.gradient_buffer(),
                       make(f.lab.context(), {1, NAN, 0, 0, 0}, {5}, DType::f32));
  CHECK(std::isnan(f.state->grad_norm(1)));
}

TEST_CASE(
    "optimizer state: hands out rate, step, clip times loss scale, and decay where it applies") {
  State f(DType::f32);
  f.state->update({.lr = 0.5,
                   .weight_decay = 0.1,
                   .grad_scale = 0.5,
                   .clip = 1.3,
                   .grad_norm = 6.5,
                   .step = 7});
  double scale = static_cast<double>(static_cast<float>(0.5 * 1.3 / (6.5 + 1e-6)));
  CHECK(f.descent.seen["w"] == std::vector<double>{0.5, 0.1, scale, 7});
  CHECK(f.descent.seen["b"] == std::vector<double>{0.5, 0, scale, 7});
  f.state->update({.lr = 0.5, .weight_decay = 0.1, .clip = 0, .grad_norm = 1e9, .step = 8});
  CHECK(f.descent.seen["w"] == std::vector<double>{0.5, 0.1, 1, 8});
}

TEST_CASE(
    "optimizer state: state begins at zero, is kept per parameter, and compute copies follow their "
    "masters") {
  for (DType dtype : kDTypes) {
    State f(dtype);
    REQUIRE(f.state->entries().size() == 2);
    CHECK(f.state->entries()[0].names == std::vector<std::string>{"sum"});
    CHECK(values_of(f.state->entries()[0].state[0]) == Values(4, 0.0));
    for (int64_t step = 1; step <= 2; ++step)
      f.state->update({.lr = 0.01, .grad_norm = 13, .step = step});
    CHECK(values_of(f.state->entries()[0].state[0]) == Values{6, 0, 0, 8});
    CHECK(values_of(f.state->entries()[1].state[0]) == Values{24});
    check_close(values_of(f.w.master), {0.94, 1, 1, 0.92}, DType::f32, {}, "master");
    CHECK(values_of(f.w.value) == round_to(values_of(f.w.master), dtype));
    CHECK(values_of(f.b.value) == round_to(values_of(f.b.master), dtype));
  }
}

}  // namespace
}  // namespace mtrain
