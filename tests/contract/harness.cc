#include "contract/harness.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "contract/test_backends.h"
#include "mtrain/base/rng.h"

namespace mtrain::contract {

double roundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

Values round_to(Values values, DType dtype) {
  for (double& v : values) {
    auto f = static_cast<float>(v);
    if (dtype == DType::bf16) f = to_float(bf16(f));
    if (dtype == DType::f16) f = to_float(f16(f));
    v = static_cast<double>(f);
  }
  return values;
}

Values random_values(int64_t count, std::string_view key, double scale) {
  RngStream rng(2024, key);
  Values values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(scale * static_cast<double>(rng.normal(static_cast<uint64_t>(i))));
  return values;
}

namespace {

template <class T>
Tensor upload(ExecutionContext& ctx, const Values& values, const Shape& shape) {
  std::vector<T> host;
  for (double v : values) host.push_back(T(static_cast<float>(v)));
  return ctx.from_host<T>(host, shape);
}

template <class T>
Values download(const Tensor& t) {
  std::vector<T> host(static_cast<size_t>(t.numel()));
  t.context().download(t, host.data());
  Values values;
  for (T v : host) values.push_back(static_cast<double>(to_float(v)));
  return values;
}

}  // namespace

Tensor make(ExecutionContext& ctx, const Values& values, const Shape& shape, DType dtype) {
  if (dtype == DType::bf16) return upload<bf16>(ctx, values, shape);
  if (dtype == DType::f16) return upload<f16>(ctx, values, shape);
  return upload<float>(ctx, values, shape);
}

Tensor make_ids(ExecutionContext& ctx, const std::vector<int32_t>& ids) {
  return ctx.from_host<int32_t>(ids, {static_cast<int64_t>(ids.size())});
}

Values values_of(const Tensor& t) {
  if (t.dtype() == DType::bf16) return download<bf16>(t);
  if (t.dtype() == DType::f16) return download<f16>(t);
  return download<float>(t);
}

Fixture::Fixture(int threads, uint64_t seed)
    : Fixture(test_backends().front().make(threads), seed) {}

Fixture::Fixture(std::unique_ptr<Backend> backend, uint64_t seed)
    : backend_(std::make_unique<GuardBackend>(std::move(backend))),
      ctx_(std::in_place, *backend_, Device{}, seed) {}

Fixture::~Fixture() {
  ctx_.reset();
  // Not CHECK_MESSAGE: while an exception unwinds, doctest appends its text to a list that threads
  // share without a lock.
  for (const auto& fault : backend_->faults()) FAIL_CHECK(fault);
  if (backend_->live() != 0) FAIL_CHECK("memory that did not come back");
}

Figures::~Figures() {
  if (std::getenv("MT_TEST_FIGURES"))
    MESSAGE(what_ << ": " << cases_ << " comparisons, at most " << worst_ << " of what is allowed");
}

double check_close(const Values& got, const Values& want, DType dtype, const Bound& bound,
                   const std::string& what) {
  REQUIRE_MESSAGE(got.size() == want.size(), what);
  double scale = 1, worst = 0, u = roundoff(dtype);
  for (double w : want) scale = std::max(scale, std::fabs(w));
  double slack =
      (bound.inner * u + bound.sums * 0x1p-24) * scale + (dtype == DType::f16 ? 0x1p-25 : 0);
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double share = std::fabs(got[i] - want[i]) / (1.01 * u * std::fabs(want[i]) + slack);
    if (!(share <= worst)) worst = share, at = i;
    if (std::isnan(share)) break;
  }
  if (!got.empty())
    CHECK_MESSAGE(worst <= 1, what, " [", at, "]: got ", got[at], ", want ", want[at], ": ", worst,
                  " of what is allowed");
  return worst;
}

namespace {

struct Outcome {
  Values out;
  std::vector<Values> grads;
  bool operator==(const Outcome&) const = default;
};

struct Setting {
  DType dtype;
  std::vector<Values> inputs;
  Values dy;
  std::vector<Values> prior;        // gradients that are already there; none when empty
  std::optional<size_t> only = {};  // the one input that wants a gradient
};

std::shared_ptr<GradTarget> target_of(ExecutionContext& ctx, const Input& input, const Setting& s,
                                      size_t i) {
  std::shared_ptr<GradTarget> target;
  if (input.parameter) {
    target = std::make_shared<Leaf>();
    target->grad = ctx.empty(input.shape, DType::f32);
  } else {
    target = std::make_shared<Catcher>();
  }
  if (!s.prior.empty()) {
    target->grad = make(ctx, s.prior[i], input.shape, input.parameter ? DType::f32 : s.dtype);
    target->has_grad = true;
  }
  return target;
}

Outcome execute(ExecutionContext& ctx, const Case& c, const Setting& s) {
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<GradTarget>> targets(c.inputs.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    tensors.push_back(make(ctx, s.inputs[i], c.inputs[i].shape, s.dtype));
    if (s.only && *s.only != i) continue;
    targets[i] = target_of(ctx, c.inputs[i], s, i);
    tensors.back().set_node(targets[i]);
  }
  DType out_dtype = c.float_out ? DType::f32 : s.dtype;
  Tensor out = c.op(ctx, tensors);
  CHECK(out.shape() == c.out);
  CHECK(out.dtype() == out_dtype);
  Outcome outcome{values_of(out), {}};
  backward(out, make(ctx, s.dy, c.out, out_dtype));
  for (auto& target : targets) outcome.grads.push_back(target ? values_of(target->grad) : Values());
  return outcome;
}

// Along a random direction of each input, the change of Σ dy·f must be the derivative's.
void check_definition(const Case& c, const std::vector<Values>& inputs, const Values& dy) {
  std::vector<Values> grads = c.backward(inputs, dy);
  auto objective = [&](const std::vector<Values>& at) {
    Values y = c.forward(at);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (size_t input = 0; input < inputs.size(); ++input) {
    Values direction =
        random_values(static_cast<int64_t>(inputs[input].size()), cat("direction ", input));
    std::vector<Values> high = inputs, low = inputs;
    double want = 0, size = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      high[input][i] += kStep * direction[i];
      low[input][i] -= kStep * direction[i];
      want += grads[input][i] * direction[i];
      size += std::fabs(grads[input][i] * direction[i]);
    }
    double got = (objective(high) - objective(low)) / (2 * kStep);
    CHECK_MESSAGE(std::fabs(got - want) <= 1e-6 * (size + 1e-2), "definition of ", c.name, ", ",
                  c.inputs[input].name, ": finite differences give ", got, ", the formula ", want);
  }
}

Values sum(const Values& a, const Values& b) {
  Values out = a;
  for (size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

void check_values(const Case& c, const Setting& s, const Outcome& got, Figures& figures) {
  std::string at = cat(c.name, " ", name(s.dtype), s.prior.empty() ? "" : " onto gradients");
  figures.add(
      check_close(got.out, c.forward(s.inputs), c.float_out ? DType::f32 : s.dtype, c.bound, at));
  std::vector<Values> want = c.backward(s.inputs, s.dy);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (s.only && *s.only != i) continue;
    const Input& input = c.inputs[i];
    // A gradient that is handed over finished is rounded once before it is added.
    Bound bound = c.bound;
    if (!s.prior.empty()) bound.inner += 1.5;
    if (input.parameter) bound = c.bound;
    bound.sums += input.roundings * roundoff(s.dtype) / 0x1p-24;
    figures.add(check_close(got.grads[i], s.prior.empty() ? want[i] : sum(want[i], s.prior[i]),
                            input.parameter ? DType::f32 : s.dtype, bound,
                            cat(at, " gradient of ", input.name)));
  }
}

void check_without_tape(ExecutionContext& ctx, const Case& c, const Setting& s,
                        const Outcome& taped) {
  GradMode off(ctx, false);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    tensors.push_back(make(ctx, s.inputs[i], c.inputs[i].shape, s.dtype));
    tensors.back().set_node(std::make_shared<Catcher>());
  }
  Tensor out = c.op(ctx, tensors);
  CHECK_MESSAGE(out.node() == nullptr, c.name, " left a tape");
  CHECK_MESSAGE(values_of(out) == taped.out, c.name, " differs without a tape");
}

Setting onto_gradients(const Case& c, Setting s) {
  for (size_t i = 0; i < c.inputs.size(); ++i)
    s.prior.push_back(round_to(random_values(c.inputs[i].shape.numel(), cat("prior ", i)),
                               c.inputs[i].parameter ? DType::f32 : s.dtype));
  return s;
}

/// The composition against the definition, and what the fused kernels gave against the composition.
void check_composition(const TestBackend& backend, Case c, const Setting& s, const Outcome& fused,
                       Figures& figures) {
  c.name += " composed";
  c.bound.sums *= 4;  // float results of each small op are rounded
  Fixture lab(backend.make(1)), wide(backend.make(3));
  c.remove(lab.kernels()), c.remove(wide.kernels());
  Outcome plain = execute(lab.context(), c, s);
  check_values(c, s, plain, figures);
  CHECK_MESSAGE(execute(wide.context(), c, s) == plain, c.name,
                " depends on the number of threads");
  check_without_tape(lab.context(), c, s, plain);
  Setting more = onto_gradients(c, s);
  check_values(c, more, execute(lab.context(), c, more), figures);

  Bound both = c.bound;
  both.inner += 1;  // each of the two is rounded to the dtype
  std::string against = cat(c.name, " and fused, ", name(s.dtype));
  check_close(fused.out, plain.out, s.dtype, both, against);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    check_close(fused.grads[i], plain.grads[i], c.inputs[i].parameter ? DType::f32 : s.dtype, both,
                cat(against, ", gradient of ", c.inputs[i].name));
}

void check_at(const TestBackend& backend, const Case& c, const Setting& s, Figures& figures) {
  std::string where = cat(c.name, " ", name(s.dtype));
  INFO("at ", backend.name);
  Fixture lab(backend.make(1)), wide(backend.make(3));
  Outcome first = execute(lab.context(), c, s);
  check_values(c, s, first, figures);
  CHECK_MESSAGE(execute(lab.context(), c, s) == first, where, " differs when it is run again");
  CHECK_MESSAGE(execute(wide.context(), c, s) == first, where, " depends on the number of threads");
  check_without_tape(lab.context(), c, s, first);

  Setting more = onto_gradients(c, s);
  check_values(c, more, execute(lab.context(), c, more), figures);

  for (size_t i = 0; c.inputs.size() > 1 && i < c.inputs.size(); ++i) {
    Setting alone = s;
    alone.only = i;
    CHECK_MESSAGE(execute(lab.context(), c, alone).grads[i] == first.grads[i], where,
                  ": gradient of ", c.inputs[i].name, " alone differs");
  }
  if (c.remove && backend.name == test_backends().front().name)
    check_composition(backend, c, s, first, figures);
}

}  // namespace

void check(const Case& c, Figures& figures) {
  std::vector<Values> inputs;
  for (const Input& input : c.inputs) inputs.push_back(input.values);
  Values dy = random_values(c.out.numel(), "dy");
  check_definition(c, inputs, dy);
  for (const TestBackend& backend : test_backends())
    for (DType dtype : kDTypes) {
      Setting s{dtype, {}, round_to(dy, c.float_out ? DType::f32 : dtype), {}};
      for (const Values& v : inputs) s.inputs.push_back(round_to(v, dtype));
      check_at(backend, c, s, figures);
    }
}

}  // namespace mtrain::contract
