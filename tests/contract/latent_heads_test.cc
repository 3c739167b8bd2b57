// Heads of latent attention: put together from the projections of latents, and made narrower.
#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/autograd/latent_ops.h"

namespace mtrain::contract {
namespace {

struct LatentRow {
  int64_t tokens;
  LatentHeads heads;
};

const std::vector<LatentRow> kRows = {
    {1, {1, 1, 2, 1}},    {3, {2, 3, 2, 3}}, {17, {3, 8, 4, 8}},     {5, {4, 2, 4, 9}},
    {33, {5, 16, 8, 16}}, {9, {2, 5, 2, 7}}, {2, {16, 128, 64, 128}}};

/// What an element of the result is: an element of one of the inputs, or 0.
struct Place {
  int input = -1;
  size_t at = 0;
};

std::vector<Place> places(const LatentRow& row) {
  const LatentHeads& h = row.heads;
  const int64_t keys = h.plain + h.value;
  std::vector<Place> out;
  auto part = [&](int input, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out.push_back({input, static_cast<size_t>(at + i)});
  };
  auto none = [&](int64_t count) { out.resize(out.size() + static_cast<size_t>(count)); };
  for (int64_t t = 0; t < row.tokens; ++t)
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t q = (t * h.heads + head) * h.query(), kv = (t * h.heads + head) * keys;
      part(0, q + h.plain, h.rotary), part(0, q, h.plain), none(h.width() - h.query());
      part(2, t * h.rotary, h.rotary), part(1, kv, h.plain), none(h.width() - h.query());
      part(1, kv + h.plain, h.value), none(h.width() - h.value);
    }
  return out;
}

Case heads_case(const LatentRow& row) {
  const LatentHeads h = row.heads;
  Case c{.name = cat("latent_heads ", row.tokens, " tokens, ", h.heads, " x ", h.plain, " + ",
                     h.rotary, ", ", h.value),
         .out = {row.tokens, h.layout().width()}};
  auto add = [&](const char* name, int64_t width) {
    c.inputs.push_back({name, {row.tokens, width}, random_values(row.tokens * width, name)});
  };
  add("q", h.heads * h.query()), add("kv", h.heads * (h.plain + h.value)), add("k", h.rotary);
  c.op = [h](ExecutionContext&, std::vector<Tensor>& t) {
    return latent_heads(t[0], t[1], t[2], h);
  };
  c.forward = [row](const std::vector<Values>& v) {
    Values y;
    for (const Place& p : places(row))
      y.push_back(p.input < 0 ? 0 : v[static_cast<size_t>(p.input)][p.at]);
    return y;
  };
  c.backward = [row](const std::vector<Values>& v, const Values& dy) {
    std::vector<Values> grads;
    for (const Values& x : v) grads.emplace_back(x.size());
    const std::vector<Place> from = places(row);
    for (size_t i = 0; i < dy.size(); ++i)
      if (from[i].input >= 0) grads[static_cast<size_t>(from[i].input)][from[i].at] += dy[i];
    return grads;
  };
  return c;
}

Case narrow_case(int64_t tokens, int64_t heads, int64_t width, int64_t count) {
  Case c{.name = cat("narrow_heads ", tokens, " x ", heads, " x ", width, " to ", count),
         .out = {tokens, heads * count}};
  c.inputs = {{"x", {tokens, heads * width}, random_values(tokens * heads * width, "x")}};
  c.op = [=](ExecutionContext&, std::vector<Tensor>& t) {
    return narrow_heads(t[0], heads, count);
  };
  c.forward = [=](const std::vector<Values>& v) {
    Values y;
    for (int64_t row = 0; row < tokens * heads; ++row)
      for (int64_t i = 0; i < count; ++i) y.push_back(v[0][static_cast<size_t>(row * width + i)]);
    return y;
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    Values dx(v[0].size());
    for (int64_t row = 0; row < tokens * heads; ++row)
      for (int64_t i = 0; i < count; ++i)
        dx[static_cast<size_t>(row * width + i)] = dy[static_cast<size_t>(row * count + i)];
    return std::vector<Values>{dx};
  };
  return c;
}

TEST_CASE("latent_heads: values and gradients") {
  Figures figures("latent_heads");
  for (const LatentRow& row : kRows) check(heads_case(row), figures);
}

TEST_CASE("narrow_heads: values and gradients") {
  Figures figures("narrow_heads");
  check(narrow_case(1, 1, 3, 2), figures);
  check(narrow_case(17, 3, 12, 8), figures);
  check(narrow_case(5, 4, 192, 128), figures);
}

TEST_CASE("narrow_heads: heads of that width already are the tensor itself") {
  Fixture lab;
  Tensor x = make(lab.context(), random_values(24, "x"), {3, 8}, DType::f32);
  CHECK(narrow_heads(x, 2, 4).raw() == x.raw());
}

TEST_CASE("latent_heads: tensors that do not fit are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const LatentHeads h{2, 4, 2, 4};
  auto refused = [&](int64_t q, int64_t kv, int64_t k, DType dtype) {
    CHECK_THROWS_AS(latent_heads(ctx.zeros({3, q}, DType::f32), ctx.zeros({3, kv}, DType::f32),
                                 ctx.zeros({3, k}, dtype), h),
                    Error);
  };
  refused(11, 16, 2, DType::f32);
  refused(12, 15, 2, DType::f32);
  refused(12, 16, 4, DType::f32);
  refused(12, 16, 2, DType::bf16);
  CHECK_THROWS_AS(narrow_heads(ctx.zeros({3, 8}, DType::f32), 3, 2), Error);
  CHECK_THROWS_AS(narrow_heads(ctx.zeros({3, 8}, DType::f32), 2, 5), Error);
}

// A block whose result is discarded is run again once, before the op that reads it.
TEST_CASE("replayed: the same gradients, whether the result is discarded or not") {
  for (DType dtype : kDTypes) {
    auto play = [&](int way, int& runs) {
      Fixture lab;
      ExecutionContext& ctx = lab.context();
      std::vector<std::shared_ptr<Catcher>> ends;
      std::vector<Tensor> in;
      for (const char* name : {"a", "b", "c"}) {
        in.push_back(make(ctx, round_to(random_values(12, name), dtype), {3, 4}, dtype));
        in.back().set_node(ends.emplace_back(std::make_shared<Catcher>()));
      }
      auto block = [&runs](const std::array<Tensor, 3>& x) {
        ++runs;
        return add(mul(x[0], x[1]), x[2]);
      };
      Tensor h = way == 0 ? block({in[0], in[1], in[2]})
                          : recompute_discardable(block, in[0], in[1], in[2]);
      Tensor y = mul(h, h);
      if (way == 2) y = discard_until_backward(y, h);
      CHECK(h.resident() == (way != 2));
      Values out = values_of(y);
      backward(y, make(ctx, round_to(random_values(12, "dy"), dtype), {3, 4}, dtype));
      for (const auto& end : ends)
        for (double v : values_of(end->grad)) out.push_back(v);
      return out;
    };
    int plain = 0, kept = 0, discarded = 0;
    const Values want = play(0, plain);
    CHECK(play(1, kept) == want);
    CHECK(play(2, discarded) == want);
    CHECK(plain == 1);
    CHECK(kept == 2);
    CHECK(discarded == 2);
  }
}

}  // namespace
}  // namespace mtrain::contract
