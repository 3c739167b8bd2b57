// The ops of mixtures of experts: rows to experts and back, products per expert, the router and
// what balances it.
#include "mtrain/autograd/expert_ops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "contract/harness.h"
#include "contract/router_reference.h"

namespace mtrain::contract {
namespace {

using Ids = std::vector<int32_t>;

/// Tokens with up to `fan` copies each, in rows of shuffled order; every fifth copy is missing.
struct Dispatch {
  Dispatch(int64_t tokens, int64_t fan)
      : tokens(tokens), fan(fan), to(static_cast<size_t>(tokens * fan), -1) {
    for (int64_t i = 0; i < tokens * fan; ++i) {
      int64_t slot = (i * 7 + 3) % (tokens * fan);
      if (slot % 5 == 4 || to[static_cast<size_t>(slot)] >= 0) continue;
      to[static_cast<size_t>(slot)] = static_cast<int32_t>(from.size());
      from.push_back(static_cast<int32_t>(slot / fan));
      slots.push_back(static_cast<int32_t>(slot));
    }
  }
  int64_t rows() const { return static_cast<int64_t>(from.size()); }
  RowMap map(ExecutionContext& ctx) const {
    return {ctx.from_host<int32_t>(from, {rows()}), ctx.from_host<int32_t>(to, {tokens, fan})};
  }
  int64_t tokens, fan;
  Ids from, slots, to;
};

TEST_CASE("gather_rows: copies of rows, and their gradients add up") {
  Figures figures("gather_rows");
  for (int64_t tokens : {1, 3, 17, 65})
    for (auto [fan, cols] : {std::array<int64_t, 2>{1, 1}, {2, 17}, {3, 700}}) {
      Dispatch way(tokens, fan);
      Case c{.name = cat("gather_rows ", tokens, " x ", cols, " to ", fan),
             .out = {way.rows(), cols}};
      c.inputs = {{"x", {tokens, cols}, random_values(tokens * cols, "x")}};
      c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
        return gather_rows(t[0], way.map(ctx));
      };
      c.forward = [=, cols = cols](const std::vector<Values>& v) {
        return reference::embedding(v[0], way.from, cols);
      };
      c.backward = [=, cols = cols](const std::vector<Values>&, const Values& dy) {
        return std::vector<Values>{reference::embedding_backward(dy, way.from, tokens, cols)};
      };
      check(c, figures);
    }
}

struct Combine {
  Dispatch way;
  int64_t cols, copies;
  template <class F>  // f(token, weight's place, row)
  void each(F&& f) const {
    for (size_t i = 0; i < way.to.size(); ++i)
      if (way.to[i] >= 0)
        f(static_cast<int64_t>(i) / way.fan, i / static_cast<size_t>(copies),
          static_cast<int64_t>(way.to[i]));
  }
  Values forward(const std::vector<Values>& v, bool addend) const {
    Values y = addend ? v[2] : Values(static_cast<size_t>(way.tokens * cols));
    each([&](int64_t t, size_t w, int64_t row) {
      for (int64_t c = 0; c < cols; ++c)
        y[static_cast<size_t>(t * cols + c)] += v[1][w] * v[0][static_cast<size_t>(row * cols + c)];
    });
    return y;
  }
  std::vector<Values> backward(const std::vector<Values>& v, const Values& dy, bool addend) const {
    std::vector<Values> out = {Values(v[0].size()), Values(v[1].size())};
    each([&](int64_t t, size_t w, int64_t row) {
      for (int64_t c = 0; c < cols; ++c) {
        auto x = static_cast<size_t>(row * cols + c);
        double d = dy[static_cast<size_t>(t * cols + c)];
        out[0][x] += v[1][w] * d;
        out[1][w] += v[0][x] * d;
      }
    });
    if (addend) out.push_back(dy);
    return out;
  }
};

// Weights are float in every dtype; the harness makes inputs of one dtype, so they are given as
// numbers that all hold.
Tensor as_weights(ExecutionContext& ctx, const Tensor& t) {
  if (t.dtype() == DType::f32) return t;
  Tensor out = ctx.empty(t.shape(), DType::f32);
  ctx.copy(out, t);
  out.set_node(t.node());
  return out;
}

TEST_CASE(
    "combine_rows: weighted sums of a token's rows, with and without copies and something to add "
    "to") {
  Figures figures("combine_rows");
  for (int64_t tokens : {1, 3, 33})
    for (auto [k, copies, cols] :
         {std::array<int64_t, 3>{1, 1, 3}, {2, 1, 65}, {2, 2, 17}, {3, 2, 600}})
      for (bool addend : {false, true}) {
        Combine how{Dispatch(tokens, k * copies), cols, copies};
        Case c{.name = cat("combine_rows ", tokens, " x ", cols, ", ", k, " of ", copies),
               .out = {tokens, cols}};
        c.inputs = {{"x", {how.way.rows(), cols}, random_values(how.way.rows() * cols, "x")},
                    {"weights", {tokens, k}, random_values(tokens * k, "weights")}};
        if (addend)
          c.inputs.push_back({"addend", {tokens, cols}, random_values(tokens * cols, "addend")});
        c.op = [=, copies = copies](ExecutionContext& ctx, std::vector<Tensor>& t) {
          Ids slot;
          for (int32_t s : how.way.slots) slot.push_back(s / static_cast<int32_t>(copies));
          CombineMap map{how.way.map(ctx), ctx.from_host<int32_t>(slot, {how.way.rows()}), copies};
          return combine_rows(t[0], as_weights(ctx, t[1]), map, addend ? t[2] : Tensor());
        };
        c.forward = [=](const std::vector<Values>& v) { return how.forward(v, addend); };
        c.backward = [=](const std::vector<Values>& v, const Values& dy) {
          return how.backward(v, dy, addend);
        };
        check(c, figures);
      }
}

TEST_CASE(
    "grouped_linear: each expert's rows times its matrix; experts without rows get no gradient") {
  Figures figures("grouped_linear");
  const std::vector<std::vector<int64_t>> loads = {{1},    {0, 3}, {2, 0, 5},   {17, 1, 0, 40},
                                                   {0, 0}, {1, 1}, {21, 21, 21}};
  for (const auto& load : loads)
    for (auto [in, out, biased] : {std::array<int64_t, 3>{3, 5, 0}, {33, 17, 1}, {64, 96, 0}}) {
      auto experts = static_cast<int64_t>(load.size()),
           total = std::accumulate(load.begin(), load.end(), int64_t{0});
      if (total == 0) continue;
      Case c{.name = cat("grouped_linear ", total, " rows, ", experts, " x ", out, " x ", in,
                         biased ? " + bias" : ""),
             .out = {total, out}};
      c.inputs = {{"x", {total, in}, random_values(total * in, "x")},
                  {"w", {experts, out, in}, random_values(experts * out * in, "w"), true}};
      if (biased)
        c.inputs.push_back({"b", {experts, out}, random_values(experts * out, "b"), true});
      c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
        return grouped_linear(t[0], t[1], std::make_shared<const std::vector<int64_t>>(load),
                              nullptr, nullptr, t.size() > 2 ? t[2] : Tensor());
      };
      auto part = [](const Values& v, int64_t begin, int64_t count, int64_t width) {
        return Values(v.begin() + begin * width, v.begin() + (begin + count) * width);
      };
      c.forward = [=, in = in, out = out](const std::vector<Values>& v) {
        Values y;
        int64_t at = 0;
        for (size_t e = 0; e < load.size(); at += load[e++]) {
          Values mine = reference::linear(
              part(v[0], at, load[e], in), part(v[1], static_cast<int64_t>(e), 1, in * out),
              v.size() > 2 ? part(v[2], static_cast<int64_t>(e), 1, out) : Values(), load[e], in,
              out);
          y.insert(y.end(), mine.begin(), mine.end());
        }
        return y;
      };
      c.backward = [=, in = in, out = out](const std::vector<Values>& v, const Values& dy) {
        std::vector<Values> g(v.size());
        int64_t at = 0;
        for (size_t e = 0; e < load.size(); at += load[e++]) {
          auto mine = reference::linear_backward(
              part(dy, at, load[e], out), part(v[0], at, load[e], in),
              part(v[1], static_cast<int64_t>(e), 1, in * out), load[e], in, out);
          for (size_t i = 0; i < g.size(); ++i)
            g[i].insert(g[i].end(), mine[i].begin(), mine[i].end());
        }
        return g;
      };
      check(c, figures);
    }
}

std::vector<RouterRule> router_rules() {
  using Score = RouterRule::Score;
  std::vector<RouterRule> out;
  for (Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus})
    for (int64_t k : {1, 2, 4}) {
      out.push_back({.score = score, .top_k = k, .scaling = 1.5});
      out.push_back({.score = score, .top_k = k, .groups = 4, .group_top_k = 2});
      if (score == Score::softmax) out.push_back({.score = score, .top_k = k, .pre_softmax = true});
      const bool before = score == Score::softmax;
      for (bool normalize : {false, true})
        out.push_back({.score = score,
                       .top_k = k,
                       .pre_softmax = before,
                       .scaling = 0.7,
                       .groups = 2,
                       .group_top_k = 1,
                       .group_best = normalize ? 1 : 3,
                       .normalize = normalize});
    }
  return out;
}

TEST_CASE("router_logits: a product with a bias") {
  Figures figures("router_logits");
  for (int64_t tokens : {1, 17}) {
    constexpr int64_t kIn = 19, kOut = 8;
    Case c{.name = cat("router_logits ", tokens), .out = {tokens, kOut}, .float_out = true};
    c.inputs = {{"x", {tokens, kIn}, random_values(tokens * kIn, "x")},
                {"w", {kOut, kIn}, random_values(kOut * kIn, "w"), true},
                {"b", {kOut}, random_values(kOut, "b"), true}};
    c.op = [](ExecutionContext&, std::vector<Tensor>& t) {
      return router_logits(t[0], t[1], t[2]);
    };
    c.forward = [=](const std::vector<Values>& v) {
      return reference::linear(v[0], v[1], v[2], tokens, kIn, kOut);
    };
    c.backward = [=](const std::vector<Values>& v, const Values& dy) {
      return reference::linear_backward(dy, v[0], v[1], tokens, kIn, kOut);
    };
    check(c, figures);
  }
}

Case swish_case(int64_t count, const SwishGate& form) {
  Case c{.name = cat("swish_gate ", count, ", factor ", form.factor, ", limit ", form.limit),
         .out = {1, count}};
  const double limit = form.limit > 0 ? form.limit : 1e9, factor = form.factor,
               offset = form.offset;
  auto inputs = [&](const char* key) {
    Values x = random_values(count, key, 2);
    for (double& v : x)  // differences near the limit would be of two slopes
      if (std::fabs(std::fabs(v) - limit) < 0.05) v *= 0.9;
    return x;
  };
  c.inputs = {{"gate", c.out, inputs("gate")}, {"up", c.out, inputs("up")}};
  auto each = [=](const std::vector<Values>& v, auto&& f) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double g = std::min(v[0][i], limit), u = std::clamp(v[1][i], -limit, limit);
      f(i, g, u, 1 / (1 + std::exp(-factor * g)));
    }
  };
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) { return swish_gate(t[0], t[1], form); };
  c.forward = [=](const std::vector<Values>& v) {
    Values y(v[0].size());
    each(v, [&](size_t i, double g, double u, double s) { y[i] = g * s * (u + offset); });
    return y;
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    std::vector<Values> d = v;
    each(v, [&](size_t i, double g, double u, double s) {
      d[0][i] = v[0][i] < limit ? dy[i] * (u + offset) * s * (1 + factor * g * (1 - s)) : 0;
      d[1][i] = std::fabs(v[1][i]) < limit ? dy[i] * g * s : 0;
    });
    return d;
  };
  return c;
}

TEST_CASE("swish_gate: values and gradients, with limits and without") {
  Figures figures("swish_gate");
  for (int64_t count : {1, 17, 65, 1025}) {
    check(swish_case(count, {.factor = 1.702f, .offset = 1, .limit = 1.5f}), figures);
    check(swish_case(count, {.factor = 1.25f}), figures);
    check(swish_case(count, {.offset = 0.5f, .limit = 0.75f}), figures);
  }
}

TEST_CASE("route: choices and weights of every rule, and the gradients of logits and router") {
  Figures figures("route");
  constexpr int64_t kWidth = 19, kExperts = 8;
  int number = 0;
  for (const RouterRule& rule : router_rules())
    for (auto [tokens, computed] : {std::pair<int64_t, DType>{1, DType::f32},
                                    {17, DType::f32},
                                    {1, DType::f64},
                                    {17, DType::f64}}) {
      Case c{.name = cat("route, rule ", number++, ", ", tokens, " tokens, ", name(computed)),
             .out = {tokens, rule.top_k},
             .float_out = true};
      c.inputs = {{"x", {tokens, kWidth}, random_values(tokens * kWidth, "x")},
                  {"w", {kExperts, kWidth}, random_values(kExperts * kWidth, "w", 0.3), true}};
      c.op = [=, computed = computed](ExecutionContext&, std::vector<Tensor>& t) {
        return route(router_logits(t[0], t[1], {}, computed), rule, {}, nullptr).weights_TK;
      };
      auto logits = [=, tokens = tokens](const std::vector<Values>& v) {
        return reference::linear(v[0], v[1], {}, tokens, kWidth, kExperts);
      };
      c.forward = [=](const std::vector<Values>& v) {
        return router_weights(logits(v), kExperts, rule);
      };
      c.backward = [=](const std::vector<Values>& v, const Values& dy) {
        Values dz = router_weights_backward(logits(v), kExperts, rule, dy);
        auto g = reference::linear_backward(dz, v[0], v[1], tokens, kWidth, kExperts);
        g.resize(2);
        return g;
      };
      c.bound.sums = 128;  // exponentials of sums of products
      check(c, figures);
    }
}

TEST_CASE("route: a bias moves the choice and not the weights; ties go to the smaller number") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Values z = {0.1, 0.4, 0.3, 0.2, 0, 0, 0, 0};
  Tensor logits = make(ctx, z, {2, 4}, DType::f32);
  RouterRule rule{.score = RouterRule::Score::sigmoid, .top_k = 2};
  CHECK(route(logits, rule, {}, nullptr).experts == Ids{1, 2, 0, 1});
  const std::vector<float> bias = {0.5f, 0, -1, 0};
  Routed routed = route(logits, rule, {.bias = bias}, nullptr);
  CHECK(routed.experts == Ids{0, 1, 0, 1});
  double a = 1 / (1 + std::exp(-0.1)), b = 1 / (1 + std::exp(-0.4));
  check_close(values_of(routed.weights_TK), {a / (a + b), b / (a + b), 0.5, 0.5}, DType::f32, {},
              "weights");
}

TEST_CASE("route: balancing losses enter the gradient of the logits and are recorded") {
  constexpr int64_t kTokens = 12, kExperts = 6;
  constexpr double kWeight = 0.25, kZ = 0.7;
  const Ids sequence_of = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2};
  const std::vector<float> before = {1.5f, 0, 2.5f, 0.5f, 0.5f, 1};
  const Values z = random_values(kTokens * kExperts, "z", 1.5);
  for (RouterRule::Score score :
       {RouterRule::Score::softmax, RouterRule::Score::sigmoid, RouterRule::Score::sqrt_softplus})
    for (auto over :
         {BalanceTerm::Over::micro_batch, BalanceTerm::Over::sequence, BalanceTerm::Over::given})
      for (int64_t groups : {0, 3}) {
        RouterRule rule{
            .score = score, .top_k = 2, .groups = groups, .group_top_k = groups ? 2 : 0};
        Fixture lab;
        ExecutionContext& ctx = lab.context();
        auto target = std::make_shared<Catcher>();
        Tensor logits = make(ctx, z, {kTokens, kExperts}, DType::f32);
        logits.set_node(target);
        RouterRecord record;
        RouterBalance balance{.terms = {{over, 0.4, before}},
                              .z_coefficient = kZ,
                              .sequence_of = sequence_of,
                              .sequences = 3,
                              .token_weight = static_cast<float>(kWeight)};
        Routed routed = route(logits, rule, balance, &record);
        backward(routed.weights_TK, ctx.zeros({kTokens, 2}, DType::f32));
        Values counted = router_counts(
            z, kExperts, rule, over == BalanceTerm::Over::sequence ? sequence_of : Ids(kTokens, 0));
        if (over == BalanceTerm::Over::given) counted.assign(before.begin(), before.end());
        auto term = [&](const Values& at) {
          return 0.4 *
                 balance_sum(at, kExperts, rule, counted,
                             over == BalanceTerm::Over::sequence ? sequence_of : Ids(kTokens, 0));
        };
        auto z_loss = [&](const Values& at) { return kZ * z_sum(at, kExperts); };
        CHECK(record.terms.at(0) == doctest::Approx(term(z)).epsilon(1e-6));
        CHECK(record.z == doctest::Approx(z_loss(z)).epsilon(1e-6));
        CHECK(record.tokens == kTokens);
        CHECK(std::accumulate(record.choices.begin(), record.choices.end(), int64_t{0}) ==
              kTokens * 2);
        Values want;
        for (size_t i = 0; i < z.size(); ++i) {
          Values high = z, low = z;
          high[i] += 1e-5, low[i] -= 1e-5;
          want.push_back(kWeight * (term(high) - term(low) + z_loss(high) - z_loss(low)) / 2e-5);
        }
        check_close(values_of(target->grad), want, DType::f32, {.sums = 64},
                    "gradient of the losses");
      }
}

/// What route() makes of some tokens: the selection, the weights, the gradient of the logits for
/// `dy`, and the record.
struct RouteOutcome {
  Ids experts;
  Values weights, gradient;
  RouterRecord record;
};

RouteOutcome routed(const Values& z, int64_t experts, const RouterRule& rule,
                    const RouterBalance& balance, const Values& dy) {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  auto tokens = static_cast<int64_t>(z.size()) / experts;
  auto target = std::make_shared<Catcher>();
  Tensor logits = make(ctx, z, {tokens, experts}, DType::f32);
  logits.set_node(target);
  RouteOutcome out;
  Routed got = route(logits, rule, balance, &out.record);
  backward(got.weights_TK, make(ctx, dy, {tokens, rule.top_k}, DType::f32));
  out.experts = got.experts;
  out.weights = values_of(got.weights_TK), out.gradient = values_of(target->grad);
  return out;
}

/// The rows of `width` values that are not padding.
template <class T>
std::vector<T> without(const std::vector<T>& all, const Ids& padding, size_t width) {
  std::vector<T> out;
  for (size_t i = 0; i < all.size(); ++i)
    if (!padding[i / width]) out.push_back(all[i]);
  return out;
}

TEST_CASE("route: padding selects nothing and counts in nothing") {
  constexpr int64_t kExperts = 6;
  const Ids padding = {0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1},
            sequences = {0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2};
  const std::vector<float> load = {1.5f, 0, 2.5f, 0.5f, 0.5f, 1};
  const Values z = random_values(12 * kExperts, "z", 1.5), dy = random_values(24, "dy");
  const Ids real_sequences = without(sequences, padding, 1);
  using Over = BalanceTerm::Over;
  for (auto score :
       {RouterRule::Score::softmax, RouterRule::Score::sigmoid, RouterRule::Score::sqrt_softplus})
    for (auto over : {Over::micro_batch, Over::sequence, Over::given})
      for (int64_t groups : {0, 3}) {
        RouterRule rule{
            .score = score, .top_k = 2, .groups = groups, .group_top_k = groups ? 2 : 0};
        RouterBalance balance{.terms = {{over, 0.4, load}},
                              .z_coefficient = 0.7,
                              .sequence_of = real_sequences,
                              .sequences = 3,
                              .token_weight = 0.25f};
        const RouteOutcome want =
            routed(without(z, padding, kExperts), kExperts, rule, balance, without(dy, padding, 2));
        balance.sequence_of = sequences;
        balance.padding = padding;
        const RouteOutcome got = routed(z, kExperts, rule, balance, dy);
        CHECK(without(got.experts, padding, 2) == want.experts);
        CHECK(without(got.weights, padding, 2) == want.weights);
        CHECK(without(got.gradient, padding, kExperts) == want.gradient);
        for (size_t i = 0; i < padding.size(); ++i) {
          if (!padding[i]) continue;
          CHECK(got.experts[2 * i] == -1);
          CHECK(got.experts[2 * i + 1] == -1);
          CHECK(got.weights[2 * i] == 0);
          for (size_t e = 0; e < kExperts; ++e) CHECK(got.gradient[i * kExperts + e] == 0);
        }
        CHECK(got.record.choices == want.record.choices);
        CHECK(got.record.terms == want.record.terms);
        CHECK(got.record.z == want.record.z);
        CHECK(got.record.tokens == 7);
        // The losses are not 0, so padding that counts would show.
        CHECK(want.record.z > 0);
        CHECK(want.record.terms.at(0) > 0);
      }
}

TEST_CASE("route: marks of padding for another number of tokens are refused") {
  Fixture lab;
  Tensor logits = make(lab.context(), random_values(8, "z"), {2, 4}, DType::f32);
  const Ids padding = {0};
  CHECK_THROWS_WITH_AS(route(logits, {}, {.padding = padding}, nullptr),
                       doctest::Contains("marks of padding"), Error);
}

TEST_CASE("route: losses without a weight are refused") {
  Fixture lab;
  Tensor logits = make(lab.context(), random_values(8, "z"), {2, 4}, DType::f32);
  CHECK_THROWS_WITH_AS(route(logits, {}, {.z_coefficient = 1}, nullptr),
                       doctest::Contains("loss_weight"), Error);
}

}  // namespace
}  // namespace mtrain::contract
