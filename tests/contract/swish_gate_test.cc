// swish_gate where values are not finite: limits replace infinities as they do any other value, and
// the rest is what PyTorch gives for min(gate, limit) * sigmoid(factor * gate) * (up + offset).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contract/harness.h"
#include "contract/test_backends.h"
#include "mtrain/autograd/expert_ops.h"

namespace mtrain::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

struct Gated {
  Values y, d_gate, d_up;
};

Gated gated(ExecutionContext& ctx, const Values& gate, const Values& up, DType dtype,
            const SwishGate& form) {
  const Shape shape{static_cast<int64_t>(gate.size())};
  Tensor g = make(ctx, gate, shape, dtype), u = make(ctx, up, shape, dtype);
  auto of_gate = std::make_shared<Catcher>(), of_up = std::make_shared<Catcher>();
  g.set_node(of_gate), u.set_node(of_up);
  Tensor y = swish_gate(g, u, form);
  Gated out{.y = values_of(y), .d_gate = {}, .d_up = {}};
  backward(y, make(ctx, Values(gate.size(), 1.0), shape, dtype));
  out.d_gate = values_of(of_gate->grad), out.d_up = values_of(of_up->grad);
  return out;
}

/// Runs `test` on every backend and in every dtype.
template <class Test>
void everywhere(Test&& test) {
  for (const TestBackend& backend : test_backends()) {
    Fixture lab(backend.make(1));
    for (DType dtype : kDTypes) {
      CAPTURE(backend.name);
      CAPTURE(name(dtype));
      test(lab.context(), dtype);
    }
  }
}

/// Equal infinities, NaN for NaN, and finite values within rounding.
void check_gate(const Values& got, const Values& want, DType dtype, const char* what) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(what);
    CAPTURE(i);
    if (std::isnan(want[i]))
      CHECK(std::isnan(got[i]));
    else if (std::isinf(want[i]))
      CHECK(got[i] == want[i]);
    else
      check_close({got[i]}, {want[i]}, dtype, {}, what);
  }
}

TEST_CASE("swish_gate: limits hold for infinite values, which get no gradient") {
  const SwishGate form{.factor = 1.702f, .offset = 1, .limit = 7};
  const double limit = 7, factor = static_cast<double>(form.factor);
  const Values gate = {kInf, kInf, kInf, 2, 2, 0.5, 9, kNan, 1};
  const Values up = {1, kInf, -kInf, kInf, -kInf, 0.5, -9, 1, kNan};
  Gated want{.y = Values(gate.size()), .d_gate = Values(gate.size()), .d_up = Values(gate.size())};
  for (size_t i = 0; i < gate.size(); ++i) {
    const bool known = !std::isnan(gate[i]) && !std::isnan(up[i]);
    const double g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit),
                 s = 1 / (1 + std::exp(-factor * g));
    want.y[i] = known ? g * s * (u + 1) : kNan;
    want.d_gate[i] = gate[i] < limit ? (u + 1) * s * (1 + factor * g * (1 - s)) : 0;
    want.d_up[i] = std::fabs(up[i]) < limit ? g * s : 0;
  }
  everywhere([&](ExecutionContext& ctx, DType dtype) {
    const Gated got = gated(ctx, gate, up, dtype, form);
    check_gate(got.y, want.y, dtype, "y");
    for (size_t i = 0; i < 7; ++i) {  // without NaN
      CAPTURE(i);
      check_close({got.d_gate[i]}, {want.d_gate[i]}, dtype, {}, "d_gate");
      check_close({got.d_up[i]}, {want.d_up[i]}, dtype, {}, "d_up");
    }
  });
}

TEST_CASE("swish_gate: without limits an infinite gate gives what silu_mul and PyTorch give") {
  // g = -inf is -inf * 0 in all of them.
  const Values gate = {kInf, kInf, kInf, -kInf, -kInf, 2}, up = {2, -2, 0, 2, 0, kInf};
  const Values want = {kInf, -kInf, kNan, kNan, kNan, kInf};
  everywhere([&](ExecutionContext& ctx, DType dtype) {
    for (float factor : {1.0f, 1.702f})
      check_gate(gated(ctx, gate, up, dtype, {.factor = factor}).y, want, dtype, "swish_gate");
    const Shape shape{static_cast<int64_t>(gate.size())};
    check_gate(values_of(silu_mul(make(ctx, gate, shape, dtype), make(ctx, up, shape, dtype))),
               want, dtype, "silu_mul");
  });
}

TEST_CASE("swish_gate: a gate of -inf is not limited") {
  everywhere([&](ExecutionContext& ctx, DType dtype) {
    const Gated got =
        gated(ctx, {-kInf, -300}, {1, 1}, dtype, {.factor = 1.702f, .offset = 1, .limit = 7});
    CHECK(std::isnan(got.y[0]));
    CHECK(got.y[1] == 0);
    CHECK(got.d_gate[1] == 0);
  });
}

}  // namespace
}  // namespace mtrain::contract
