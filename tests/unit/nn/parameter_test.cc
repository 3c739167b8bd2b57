// Parameters, the list that owns them, and scopes that make them.
#include "mtrain/nn/parameter.h"

#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

using namespace contract;

TEST_CASE(
    "scope: names are paths, dims and decay are kept, initial values follow from seed and name") {
  Fixture lab(1, 5), other(1, 5);
  ParamList list, reversed;
  BuildSettings settings{.ctx = lab.context(), .parameters = list},
      again{.ctx = other.context(), .parameters = reversed};
  Scope root(settings), root2(again);
  Parameter& w = (root / "layers" / 0 / "attn")
                     .param("weight", {{"heads", 6}, {"embed", 4}}, Init::normal(0.1f), true);
  Parameter& b = root.param("bias", {{"embed", 4}}, Init::ones(), false);
  CHECK(w.name == "layers.0.attn.weight");
  CHECK(b.name == "bias");
  CHECK(w.dims[0].name == "heads");
  CHECK(w.master.shape() == Shape{6, 4});
  CHECK(w.decay);
  CHECK_FALSE(b.decay);
  CHECK(values_of(b.master) == Values{1, 1, 1, 1});
  // Another order of building gives the same values.
  root2.param("bias", {{"embed", 4}}, Init::ones(), false);
  Parameter& w2 = (root2 / "layers" / 0 / "attn")
                      .param("weight", {{"heads", 6}, {"embed", 4}}, Init::normal(0.1f), true);
  CHECK(values_of(w2.master) == values_of(w.master));
  CHECK(list.numel() == 28);
  CHECK(list.find("bias") == &b);
  CHECK(list.find("layers.0.attn") == nullptr);
}

TEST_CASE("scope: in bf16 and fp16 the value is the rounded master, in fp32 the master itself") {
  Fixture lab;
  for (DType dtype : kDTypes) {
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list, .dtype = dtype};
    Parameter& p = Scope(settings).param("w", {{"rows", 9}, {"cols", 5}}, Init::normal(1), true);
    CHECK(p.master.dtype() == DType::f32);
    CHECK(p.value.dtype() == dtype);
    CHECK(values_of(p.value) == round_to(values_of(p.master), dtype));
    CHECK((p.value.raw() == p.master.raw()) == (dtype == DType::f32));
  }
}

TEST_CASE("scope: faulty dimensions are the user's fault, equal names the author's") {
  Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list};
  Scope root(settings);
  auto error_of = [&](auto make) {
    try {
      make();
    } catch (const Error& error) {
      return std::pair(error.error_class(), error.message());
    }
    return std::pair(ErrorClass::usage, std::string("nothing thrown"));
  };
  auto [kind, text] = error_of([&] {
    (root / "mlp").param("w", {{"mlp", 0}}, Init::zeros(), true);
  });
  CHECK(kind == ErrorClass::config);
  CHECK(text.find("mlp.w") != std::string::npos);
  CHECK(error_of([&] {
          root.param("w", {{"mlp", -4}}, Init::zeros(), true);
        }).first == ErrorClass::config);
  root.param("w", {{"mlp", 4}}, Init::zeros(), true);
  CHECK(error_of([&] {
          root.param("w", {{"mlp", 4}}, Init::zeros(), true);
        }).first == ErrorClass::bug);
}

struct Two {
  Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list};
  Parameter& a = Scope(settings).param("a", {{"rows", 2}, {"cols", 3}}, Init::ones(), true);
  Parameter& b = Scope(settings).param("b", {{"rows", 1}, {"cols", 3}}, Init::ones(), true);
};

TEST_CASE("parameters: gradients lie one after another in one buffer") {
  Two t;
  t.list.allocate_gradients(t.lab.context());
  CHECK(t.list.gradient_buffer().numel() == 9);
  CHECK(values_of(t.list.gradient_buffer()) == Values(9, 0.0));
  CHECK(t.a.main_grad.shape() == Shape{2, 3});
  CHECK(t.b.main_grad.raw() == t.list.gradient_buffer().slice(0, 6, 9).raw());
  backward(add(t.b.use(), t.b.use()), make(t.lab.context(), {1, 2, 3}, {1, 3}, DType::f32));
  CHECK(values_of(t.list.gradient_buffer()) == Values{0, 0, 0, 0, 0, 0, 2, 4, 6});
}

TEST_CASE("parameters: cleared gradients are overwritten, and settled to zero where nothing came") {
  Two t;
  ExecutionContext& ctx = t.lab.context();
  t.list.allocate_gradients(ctx);
  auto step = [&](bool use_a) {
    t.list.clear_gradients();
    Tensor dy = make(ctx, {1, 2, 3}, {1, 3}, DType::f32);
    for (int micro = 0; micro < 2; ++micro)
      backward(add(t.b.use(), make(ctx, {0, 0, 0}, {1, 3}, DType::f32)), dy);
    if (use_a) backward(add(t.a.use(), t.a.use()), make(ctx, Values(6, 1.0), {2, 3}, DType::f32));
    t.list.zero_unwritten_gradients(ctx);
    return values_of(t.list.gradient_buffer());
  };
  CHECK(step(true) == Values{2, 2, 2, 2, 2, 2, 2, 4, 6});
  CHECK(step(false) == Values{0, 0, 0, 0, 0, 0, 2, 4, 6});
  CHECK(step(true) == Values{2, 2, 2, 2, 2, 2, 2, 4, 6});
}

TEST_CASE("parameters: without a tape their use leads nowhere") {
  Two t;
  CHECK(t.a.use().node() == t.a.leaf);
  GradMode off(t.lab.context(), false);
  CHECK(t.a.use().node() == nullptr);
}

TEST_CASE("parameters: values that come from a checkpoint are not filled in vain") {
  Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list, .initialise = false};
  Parameter& p = Scope(settings).param("w", {{"rows", 4}}, Init::ones(), true);
  CHECK(p.master.defined());
  for (double v : values_of(p.master)) CHECK(v != v);  // as the guarded backend left it
}

TEST_CASE("parameter: any range of local elements is a few boxes that hold just those, once each") {
  Parameter p;
  p.name = "w";
  p.global = {6, 4, 5}, p.local = {4, 4, 3};
  p.shards = {{0, {{.global = 1, .local = 0, .size = 1}, {.global = 3, .local = 1, .size = 3}}},
              {2, {{.global = 2, .local = 0, .size = 3}}}};
  int64_t n = p.numel();
  std::vector<int64_t> global_of(static_cast<size_t>(n), -1);
  for (const ParamBox& box : p.boxes())
    for_each_run(box.global, p.global, box.local, p.local,
                 [&](int64_t global, int64_t local, int64_t count) {
                   for (int64_t i = 0; i < count; ++i)
                     global_of[static_cast<size_t>(local + i)] = global + i;
                 });
  size_t most = 0;
  for (int64_t begin = 0; begin < n; ++begin)
    for (int64_t end = begin + 1; end <= n; ++end) {
      std::vector<int> seen(static_cast<size_t>(n), 0);
      auto boxes = p.boxes_of(begin, end);
      most = std::max(most, boxes.size());
      for (const ParamBox& box : boxes)
        for_each_run(box.global, p.global, box.local, p.local,
                     [&](int64_t global, int64_t local, int64_t count) {
                       for (int64_t i = 0; i < count; ++i) {
                         ++seen[static_cast<size_t>(local + i)];
                         REQUIRE(global_of[static_cast<size_t>(local + i)] == global + i);
                       }
                     });
      for (int64_t i = 0; i < n; ++i)
        REQUIRE(seen[static_cast<size_t>(i)] == (i >= begin && i < end));
    }
  CHECK(most <= 2 * 5);
}

TEST_CASE("parameter: initial values of a range are those of the whole") {
  Fixture lab(1, 5);
  ParamList list, later;
  BuildSettings settings{.ctx = lab.context(), .parameters = list},
      deferred{.ctx = lab.context(), .parameters = later, .defer_memory = true};
  Parameter& w = Scope(settings).param("w", {{"a", 5}, {"b", 7}}, Init::normal(1), true);
  Parameter& d = Scope(deferred).param("w", {{"a", 5}, {"b", 7}}, Init::normal(1), true);
  CHECK_FALSE(d.master.defined());
  CHECK(d.numel() == 35);
  Values whole = values_of(w.master);
  for (int64_t begin : {0, 3, 7, 20}) {
    std::vector<float> part(static_cast<size_t>(35 - begin));
    d.init_values(lab.context().seed(), begin, part);
    CHECK(Values(part.begin(), part.end()) == Values(whole.begin() + begin, whole.end()));
  }
}

}  // namespace
}  // namespace mtrain
