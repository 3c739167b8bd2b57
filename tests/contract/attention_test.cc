// rope and attention on fused projections.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "contract/harness.h"

namespace mtrain::contract {
namespace {

using reference::Heads;

HeadLayout head_layout(const Heads& h) { return {h.heads, h.groups, h.head_dim}; }

SequenceBounds bounds_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> bounds = {0};
  for (int64_t n : lengths) bounds.push_back(bounds.back() + static_cast<int32_t>(n));
  return std::make_shared<const std::vector<int32_t>>(bounds);
}

struct Angles {
  int64_t rotary_dim, positions;
  Values cos, sin;
  RopeTable table(ExecutionContext& ctx, bool interleaved = false) const {
    const Shape shape = {positions, rotary_dim / 2};
    return {make(ctx, cos, shape, DType::f32), make(ctx, sin, shape, DType::f32), interleaved};
  }
};

Angles angles_of(int64_t rotary_dim, int64_t positions, double factor = 1) {
  Angles a{rotary_dim, positions, {}, {}};
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
      double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      a.cos.push_back(static_cast<double>(static_cast<float>(factor * std::cos(angle))));
      a.sin.push_back(static_cast<double>(static_cast<float>(factor * std::sin(angle))));
    }
  return a;
}

struct RopeRow {
  Heads heads;
  int64_t tokens, rotary_dim;
};

const std::vector<RopeRow> kRopeRows = {
    {{1, 1, 2}, 1, 2},    {{2, 2, 6}, 3, 6},     {{2, 1, 6}, 3, 2},    {{4, 1, 16}, 17, 16},
    {{4, 2, 16}, 33, 8},  {{4, 4, 16}, 65, 16},  {{8, 2, 20}, 17, 12}, {{3, 3, 10}, 129, 10},
    {{6, 3, 64}, 33, 64}, {{8, 8, 32}, 129, 32}, {{1, 1, 128}, 65, 64}};

std::vector<int32_t> positions_of(int64_t tokens, int64_t count) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < tokens; ++t)
    positions.push_back(static_cast<int32_t>(t < tokens / 2 ? t : (t * 7 + 3) % count));
  return positions;
}

Case rope_case(const RopeRow& row, bool interleaved, double factor = 1) {
  Case c{.name = cat("rope ", interleaved ? "interleaved " : "", row.tokens, " tokens, heads ",
                     row.heads.heads, "/", row.heads.groups, " x ", row.heads.head_dim, ", rotary ",
                     row.rotary_dim),
         .out = {row.tokens, row.heads.width()}};
  Angles angles = angles_of(row.rotary_dim, 150, factor);
  std::vector<int32_t> positions = positions_of(row.tokens, 150);
  c.inputs = {{"qkv", c.out, random_values(c.out.numel(), "qkv")}};
  c.op = [=](ExecutionContext& ctx, std::vector<Tensor>& t) {
    return rope(std::move(t[0]), head_layout(row.heads), angles.table(ctx, interleaved),
                make_ids(ctx, positions));
  };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::rope(v[0], row.heads, row.rotary_dim, angles.cos, angles.sin, positions, 1,
                           interleaved);
  };
  c.backward = [=](const std::vector<Values>&, const Values& dy) {
    return std::vector<Values>{reference::rope(dy, row.heads, row.rotary_dim, angles.cos,
                                               angles.sin, positions, -1, interleaved)};
  };
  c.bound.sums = 4;
  c.remove = [](KernelTable& kernels) { kernels.rope = nullptr; };
  return c;
}

TEST_CASE("rope: values and gradients") {
  Figures figures("rope");
  for (bool interleaved : {false, true})
    for (const RopeRow& row : kRopeRows) check(rope_case(row, interleaved), figures);
  check(rope_case({{4, 2, 16}, 33, 8}, false, 1.25), figures);  // an attention factor
}

TEST_CASE("rope: turns in place when nobody else holds the tensor, and a copy otherwise") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{2, 1, 6};
  Angles angles = angles_of(6, 10);
  for (DType dtype : kDTypes) {
    Values before = round_to(random_values(3 * heads.width(), "qkv"), dtype);
    Tensor alone = make(ctx, before, {3, heads.width()}, dtype),
           held = make(ctx, before, {3, heads.width()}, dtype);
    void* place = alone.raw();
    Tensor a =
        rope(std::move(alone), head_layout(heads), angles.table(ctx), make_ids(ctx, {0, 1, 9}));
    Tensor b = rope(Tensor(held), head_layout(heads), angles.table(ctx), make_ids(ctx, {0, 1, 9}));
    CHECK(a.raw() == place);
    CHECK(b.raw() != held.raw());
    CHECK(values_of(held) == before);
    CHECK(values_of(a) == values_of(b));
    CHECK(values_of(a) != before);
  }
}

TEST_CASE("rope: its gradient turns back without touching a gradient that others hold") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{1, 1, 4};
  Angles angles = angles_of(4, 4);
  Values dy = random_values(3 * heads.width(), "dy");
  Tensor given = make(ctx, dy, {3, heads.width()}, DType::f32);
  auto probe = std::make_shared<Catcher>();
  Tensor x = make(ctx, dy, {3, heads.width()}, DType::f32);
  x.set_node(probe);
  backward(rope(std::move(x), head_layout(heads), angles.table(ctx), make_ids(ctx, {1, 2, 3})),
           given);
  CHECK(values_of(given) == round_to(dy, DType::f32));
  CHECK(values_of(probe->grad) != values_of(given));
}

struct AttentionRow {
  Heads heads;
  std::vector<int64_t> lengths;
};

const std::vector<AttentionRow> kAttentionRows = {
    {{1, 1, 1}, {1}},          {{1, 1, 2}, {3}},           {{2, 2, 6}, {17, 1, 33}},
    {{4, 2, 16}, {65}},        {{4, 1, 16}, {129}},        {{8, 4, 8}, {1, 1, 1}},
    {{8, 2, 20}, {3, 17, 33}}, {{3, 3, 33}, {33, 65}},     {{4, 1, 64}, {17, 65}},
    {{2, 1, 128}, {33}},       {{6, 3, 10}, {0, 5, 0, 3}}, {{4, 2, 48}, {2, 3, 5, 7, 11, 13}},
    {{4, 4, 32}, {129, 64}},   {{12, 3, 17}, {31, 32, 1}}, {{1, 1, 64}, {257}}};

Case attention_case(const AttentionRow& row, bool causal, double spread) {
  SequenceBounds bounds = bounds_of(row.lengths);
  int64_t tokens = bounds->back();
  Case c{.name = cat("attention ", causal ? "causal " : "", row.heads.heads, "/", row.heads.groups,
                     " x ", row.heads.head_dim, ", ", row.lengths.size(), " sequences, ", tokens,
                     " tokens, spread ", spread),
         .out = {tokens, row.heads.heads * row.heads.head_dim}};
  double scale = 1 / std::sqrt(static_cast<double>(row.heads.head_dim));
  auto float_scale = static_cast<float>(scale);
  scale = static_cast<double>(float_scale);
  const Shape shape = {tokens, row.heads.width()};
  c.inputs = {{"qkv", shape, random_values(shape.numel(), "qkv", spread)}};
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return attention(t[0], head_layout(row.heads), bounds, {float_scale, causal});
  };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::attention(v[0], row.heads, *bounds, {scale, causal});
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    return std::vector<Values>{
        reference::attention_backward(dy, v[0], row.heads, *bounds, {scale, causal}).qkv};
  };
  // Backward starts from the output as it was rounded, and probabilities may be rounded on their
  // way.
  c.bound = {.inner = 4, .sums = 16 * (1 + spread * spread)};
  return c;
}

TEST_CASE("attention: values and gradients") {
  Figures figures("attention");
  for (const AttentionRow& row : kAttentionRows)
    for (bool causal : {true, false}) check(attention_case(row, causal, 1), figures);
  check(attention_case({{4, 2, 16}, {33, 17}}, true, 3), figures);
}

/// The masks that a Fixture draws in step 0 (contract/harness.h).
std::function<double(int64_t, int64_t, int64_t)> masks_of(const AttentionScores& scores) {
  if (scores.dropout == 0) return {};
  AttentionDropout d{.p = scores.dropout,
                     .seed = 11,
                     .name_key = scores.dropout_key,
                     .first_head = scores.first_head};
  return [d](int64_t head, int64_t query, int64_t key) {
    return static_cast<double>(AttentionKeep(d, head).factor(query, key));
  };
}

Case varied_case(const AttentionRow& row, const AttentionScores& scores, bool sinks) {
  SequenceBounds bounds = bounds_of(row.lengths);
  int64_t tokens = bounds->back();
  Case c{.name = cat("attention ", row.heads.heads, "/", row.heads.groups, " x ",
                     row.heads.head_dim, ", ", tokens, " tokens, window ", scores.window, ", cap ",
                     scores.cap, ", dropout ", scores.dropout, sinks ? ", sinks" : ""),
         .out = {tokens, row.heads.heads * row.heads.head_dim}};
  const Shape shape = {tokens, row.heads.width()};
  c.inputs = {{"qkv", shape, random_values(shape.numel(), "qkv")}};
  if (sinks)
    c.inputs.push_back(
        {"sinks", {row.heads.heads}, random_values(row.heads.heads, "sinks"), true, 16});
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return attention(t[0], head_layout(row.heads), bounds, scores, sinks ? t[1] : Tensor());
  };
  auto in_double = [=](const std::vector<Values>& v) {
    return reference::Scores{.scale = static_cast<double>(scores.scale),
                             .causal = scores.causal,
                             .window = scores.window,
                             .cap = static_cast<double>(scores.cap),
                             .sinks = sinks ? v[1] : Values(),
                             .keep = masks_of(scores)};
  };
  c.forward = [=](const std::vector<Values>& v) {
    return reference::attention(v[0], row.heads, *bounds, in_double(v));
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    auto grads = reference::attention_backward(dy, v[0], row.heads, *bounds, in_double(v));
    std::vector<Values> all = {grads.qkv};
    if (sinks) all.push_back(grads.sinks);
    return all;
  };
  // As in attention_case(); dropout magnifies what is rounded, and each token of a sink's gradient
  // brings a rounding.
  c.bound = {.inner = 8 / (1 - static_cast<double>(scores.dropout)), .sums = 128};
  return c;
}

TEST_CASE("attention: windows, caps, sinks and dropout") {
  Figures figures("attention, varied");
  std::vector<AttentionScores> all;
  for (int64_t window : {1, 3, 16, 64, 100})
    all.push_back({.scale = 0.3f, .causal = true, .window = window});
  for (bool causal : {true, false}) {
    all.push_back({.scale = 0.5f, .causal = causal});
    all.push_back({.scale = 0.3f, .causal = causal, .cap = 0.9f});
    all.push_back(
        {.scale = 0.3f, .causal = causal, .dropout = 0.25f, .dropout_key = 9, .first_head = 4});
  }
  all.push_back({.scale = 0.3f, .causal = true, .window = 5, .cap = 2, .dropout = 0.4f});
  for (const AttentionScores& scores : all)
    for (bool sinks : {false, true})
      for (size_t row : {2, 6, 10}) check(varied_case(kAttentionRows[row], scores, sinks), figures);
}

TEST_CASE("attention: a rank with the last heads drops what one rank drops") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  ctx.first_token = 700;
  const Heads both{2, 2, 8}, one{1, 1, 8};
  SequenceBounds bounds = bounds_of({20, 30});
  Values qkv = random_values(50 * both.width(), "qkv"), half;
  for (int64_t t = 0; t < 50; ++t)
    half.insert(half.end(), qkv.begin() + t * both.width() + one.width(),
                qkv.begin() + (t + 1) * both.width());
  AttentionScores scores{.scale = 0.3f, .dropout = 0.5f, .dropout_key = 3};
  Values whole = values_of(
      attention(make(ctx, qkv, {50, both.width()}, DType::f32), head_layout(both), bounds, scores));
  scores.first_head = 1;
  Values part = values_of(
      attention(make(ctx, half, {50, one.width()}, DType::f32), head_layout(one), bounds, scores));
  for (int64_t t = 0; t < 50; ++t)
    for (int64_t e = 0; e < 8; ++e)
      CHECK(part[static_cast<size_t>(t * 8 + e)] == whole[static_cast<size_t>(t * 16 + 8 + e)]);
  ctx.training = false;
  scores.dropout = 0.9f;
  Values kept = values_of(
      attention(make(ctx, half, {50, one.width()}, DType::f32), head_layout(one), bounds, scores));
  scores.dropout = 0;
  CHECK(kept == values_of(attention(make(ctx, half, {50, one.width()}, DType::f32),
                                    head_layout(one), bounds, scores)));
}

TEST_CASE("attention: tokens see neither other sequences nor, when causal, what comes after them") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{4, 2, 8};
  SequenceBounds bounds = bounds_of({5, 7, 4});
  const Shape shape = {16, heads.width()};
  for (DType dtype : kDTypes)
    for (bool causal : {true, false}) {
      auto at = [&](const Values& values) {
        return values_of(
            attention(make(ctx, values, shape, dtype), head_layout(heads), bounds, {0.3f, causal}));
      };
      constexpr int64_t kChanged = 8;  // the fourth token of the second sequence
      Values before = random_values(shape.numel(), "qkv"), after = before;
      for (int64_t i = 0; i < heads.width(); ++i)
        after[static_cast<size_t>(kChanged * heads.width() + i)] += 1;
      Values a = at(before), b = at(after);
      for (int64_t t = 0; t < 16; ++t) {
        auto row = [&](const Values& v) {
          return Values(v.begin() + t * 32, v.begin() + (t + 1) * 32);
        };
        bool sees = t < 12 && t >= (causal ? kChanged : 5);
        CHECK((row(a) != row(b)) == sees);
      }
    }
}

TEST_CASE("attention: large scores neither overflow nor become NaN") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{1, 1, 4};
  SequenceBounds bounds = bounds_of({3});
  for (DType dtype : kDTypes) {
    Values qkv(static_cast<size_t>(3 * heads.width()), 100.0);
    Tensor x = make(ctx, qkv, {3, heads.width()}, dtype);
    auto probe = std::make_shared<Catcher>();
    x.set_node(probe);
    Tensor y = attention(x, head_layout(heads), bounds, {});
    for (double v : values_of(y))
      CHECK(v == doctest::Approx(100.0).epsilon(dtype == DType::f32 ? 1e-6 : 1.0 / 256));
    backward(y, make(ctx, Values(12, 1.0), {3, 4}, dtype));
    for (double g : values_of(probe->grad)) CHECK(std::isfinite(g));
  }
}

TEST_CASE("attention: bounds that do not cover the tokens are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Heads heads{1, 1, 4};
  Tensor x = ctx.zeros({4, heads.width()}, DType::f32);
  auto refused = [&](std::vector<int32_t> bounds) {
    auto shared = std::make_shared<const std::vector<int32_t>>(std::move(bounds));
    CHECK_THROWS_AS(attention(x, head_layout(heads), shared, {}), Error);
  };
  refused({});
  refused({0});
  refused({0, 3});
  refused({0, 5});
  refused({1, 4});
  refused({0, 3, 2, 4});
  CHECK_THROWS_AS(attention(x, head_layout(heads), nullptr, {}), Error);
}

}  // namespace
}  // namespace mtrain::contract
