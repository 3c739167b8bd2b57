#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

std::vector<int32_t> targets_of(int64_t rows, int64_t valid, int ignore_every) {
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < rows; ++t)
    targets.push_back(ignore_every > 0 && t % ignore_every == 0
                          ? -1
                          : static_cast<int32_t>((t * 37 + 5) % valid));
  return targets;
}

Case loss_case(int64_t rows, int64_t cols, int64_t valid, int ignore_every, double spread) {
  Case c{.name = cat("cross_entropy ", rows, " x ", cols, " (", valid, "), spread ", spread,
                     ", ignored 1/", ignore_every),
         .out = {rows},
         .float_out = true};
  std::vector<int32_t> targets = targets_of(rows, valid, ignore_every);
  c.inputs = {{"logits", {rows, cols}, random_values(rows * cols, "logits", spread)}};
  c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
    return cross_entropy(std::move(t[0]), make_ids(ctx, targets), valid);
  };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::cross_entropy(v[0], targets, cols, valid);
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    return std::vector<Values>{reference::cross_entropy_backward(dy, v[0], targets, cols, valid)};
  };
  c.bound.sums = 16 * std::max(1.0, spread);
  return c;
}

TEST_CASE("cross_entropy: values and gradients") {
  Figures figures("cross_entropy");
  for (int64_t rows : kOddSizes)
    for (int64_t cols : kOddSizes)
      check(loss_case(rows, cols, cols, static_cast<int>(rows % 4), 2), figures);
  check(loss_case(17, 128, 97, 0, 1), figures);
  check(loss_case(17, 128, 1, 3, 1), figures);
  check(loss_case(33, 300, 257, 2, 1), figures);
  check(loss_case(5, 65, 60, 1, 1), figures);  // every target ignored
  check(loss_case(9, 1000, 1000, 0, 15), figures);
}

TEST_CASE("cross_entropy of mapped logits: values and gradients") {
  Figures figures("cross_entropy of mapped logits");
  for (auto [scale, cap] : {std::pair{0.25, 0.0}, {1.0, 3.0}, {0.5, 30.0}, {4.0, 2.0}})
    for (int64_t rows : {1, 17, 65})
      for (int64_t cols : {3, 33, 129}) {
        const int64_t valid = cols - cols / 7;
        Case c = loss_case(rows, cols, valid, 3, 3);
        c.name += cat(", scale ", scale, ", cap ", cap);
        std::vector<int32_t> targets = targets_of(rows, valid, 3);
        const LogitMap map{static_cast<float>(scale), static_cast<float>(cap)};
        c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
          return cross_entropy(std::move(t[0]), make_ids(ctx, targets), valid, {}, map);
        };
        c.forward = [=, s = scale, top = cap](const std::vector<Values>& v) {
          return reference::cross_entropy(reference::map_logits(v[0], s, top), targets, cols,
                                          valid);
        };
        c.backward = [=, s = scale, top = cap](const std::vector<Values>& v, const Values& dy) {
          Values dz = reference::cross_entropy_backward(dy, reference::map_logits(v[0], s, top),
                                                        targets, cols, valid);
          return std::vector<Values>{reference::map_logits_backward(dz, v[0], s, top)};
        };
        check(c, figures);
      }
}

TEST_CASE("map_logits: values and gradients, and the loss of its result") {
  Figures figures("map_logits");
  for (auto [scale, cap] : {std::pair{0.25, 0.0}, {1.0, 3.0}, {2.0, 30.0}})
    for (int64_t rows : {1, 17}) {
      Case c{.name = cat("map_logits ", rows, ", scale ", scale, ", cap ", cap), .out = {rows, 33}};
      c.inputs = {{"x", {rows, 33}, random_values(rows * 33, "x", 3)}};
      const LogitMap map{static_cast<float>(scale), static_cast<float>(cap)};
      c.op = [=](ExecutionContext&, std::vector<Tensor>& t) { return map_logits(t[0], map); };
      c.forward = [s = scale, top = cap](const std::vector<Values>& v) {
        return reference::map_logits(v[0], s, top);
      };
      c.backward = [s = scale, top = cap](const std::vector<Values>& v, const Values& dy) {
        return std::vector<Values>{reference::map_logits_backward(dy, v[0], s, top)};
      };
      check(c, figures);
    }
  Fixture lab;
  Tensor x = make(lab.context(), {1, 2}, {1, 2}, DType::f32);
  CHECK(map_logits(x, {}).raw() == x.raw());
}

TEST_CASE("cross_entropy: padding may hold anything, NaN and infinity included") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    Values logits = random_values(3 * 8, "logits");
    Tensor clean = make(ctx, logits, {3, 8}, dtype);
    for (int64_t r = 0; r < 3; ++r) {
      logits[static_cast<size_t>(r * 8 + 6)] = INFINITY;
      logits[static_cast<size_t>(r * 8 + 7)] = NAN;
    }
    auto run_on = [&](Tensor x) {
      auto probe = std::make_shared<Catcher>();
      x.set_node(probe);
      Tensor loss = cross_entropy(std::move(x), make_ids(ctx, {0, -1, 5}), 6);
      backward(loss, make(ctx, {1, 1, 1}, {3}, DType::f32));
      return std::pair(values_of(loss), values_of(probe->grad));
    };
    CHECK(run_on(make(ctx, logits, {3, 8}, dtype)) == run_on(clean));
  }
}

TEST_CASE("cross_entropy: the gradient takes the logits' place, unless somebody still holds them") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  for (DType dtype : kDTypes) {
    auto with = [&](bool hold) {
      Values values = round_to(random_values(5 * 9, "logits"), dtype);
      Tensor x = make(ctx, values, {5, 9}, dtype), kept = hold ? x : Tensor();
      void* place = x.raw();
      auto probe = std::make_shared<Catcher>();
      x.set_node(probe);
      Tensor loss = cross_entropy(std::move(x), make_ids(ctx, {1, 2, 3, 4, 5}), 9);
      kept = kept.defined() ? kept.detach() : kept;
      backward(loss, make(ctx, {1, 2, 3, 4, 5}, {5}, DType::f32));
      CHECK((probe->grad.raw() == place) == !hold);
      if (hold) CHECK(values_of(kept) == values);
      return values_of(probe->grad);
    };
    CHECK(with(true) == with(false));
  }
}

TEST_CASE("cross_entropy: logits of a hundred give finite losses and a certain one gives none") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor loss = cross_entropy(make(ctx, {500, 0, 0, 500, -500, 0}, {2, 3}, DType::f32),
                              make_ids(ctx, {0, 1}), 3);
  CHECK(values_of(loss) == Values{0, 1000});
}

TEST_CASE("cross_entropy: gradients of a row add up to nothing") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor x = make(ctx, random_values(33 * 129, "logits"), {33, 129}, DType::f32);
  auto probe = std::make_shared<Catcher>();
  x.set_node(probe);
  Tensor loss = cross_entropy(std::move(x), make_ids(ctx, targets_of(33, 120, 0)), 120);
  backward(loss, make(ctx, Values(33, 1.0), {33}, DType::f32));
  Values d = values_of(probe->grad);
  for (size_t r = 0; r < 33; ++r) {
    double sum = 0;
    for (size_t c = 0; c < 129; ++c) sum += d[r * 129 + c];
    CHECK(std::fabs(sum) < 1e-6);
    for (size_t c = 120; c < 129; ++c) CHECK(d[r * 129 + c] == 0);
  }
}

TEST_CASE("cross_entropy: faulty arguments are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  CHECK_THROWS_AS(cross_entropy(ctx.zeros({2, 3}, DType::f32), make_ids(ctx, {0}), 3), Error);
  CHECK_THROWS_AS(cross_entropy(ctx.zeros({2, 3}, DType::f32), make_ids(ctx, {0, 1}), 4), Error);
  CHECK_THROWS_AS(cross_entropy(ctx.zeros({2, 3}, DType::f32), make_ids(ctx, {0, 1}), 0), Error);
}

}  // namespace
}  // namespace mtrain::contract
