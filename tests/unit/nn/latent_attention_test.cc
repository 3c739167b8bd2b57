// Latent attention: what it computes, tensor-parallel ranks against one rank, and recomputation of
// its up projections.
#include "mtrain/nn/latent_attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/decoder.h"
#include "unit/nn/whole_gradients.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kLatentTokens = 8, kLatentWidth = 12;
const LatentHeads kLatentHeads{.heads = 4, .plain = 5, .rotary = 2, .value = 4};

LatentSizes sizes_of(int64_t q_rank, LatentHeads heads = kLatentHeads) {
  return {.q_rank = q_rank, .kv_rank = 6, .heads = heads, .norm_eps = 1e-5f};
}

AttentionOptions latent_options(const LatentSizes& sizes, bool bias = false) {
  return {.layout = sizes.heads.layout(),
          .bias = bias,
          .init_std = 0.4f,
          .out_init_std = 0.4f,
          .scale = 0.3f};
}

struct LatentOutcome {
  Values y = Values(kLatentTokens * kLatentWidth), dx = Values(kLatentTokens * kLatentWidth);
  std::map<std::string, Values> gradients;
  int64_t kept = 0;  // bytes of activations between forward and backward
};

Values latent_rows(const Values& all, int64_t first, int64_t count) {
  return Values(all.begin() + first * kLatentWidth, all.begin() + (first + count) * kLatentWidth);
}

ModelInput some_input(ExecutionContext& ctx) {
  return {.positions_T = make_ids(ctx, {0, 1, 2, 0, 1, 2, 3, 4}),
          .bounds = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 3, 8})};
}

struct Layout {
  int ranks = 1;
  bool sequence = false;
  std::vector<RecomputePart> again = {};
};

LatentOutcome play_latent(const LatentSizes& sizes, bool bias, const Layout& layout) {
  LatentOutcome out;
  std::mutex mutex;
  const Values x = random_values(kLatentTokens * kLatentWidth, "x"),
               dy = random_values(kLatentTokens * kLatentWidth, "dy");
  run_ranks(layout.ranks, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"tp", layout.ranks}}));
    ParallelContext parallel{
        .tp = &mesh["tp"], .sequence_parallel = layout.sequence, .tracks_placements = true};
    Fixture lab{1};
    ExecutionContext& ctx = lab.context();
    if (layout.ranks > 1)
      ctx.tracked_axis = {.axis = parallel.tp, .residual = parallel.residual_placement()};
    ParamList list;
    BlockPlan blocks{.parts = layout.again};
    BuildSettings settings{.ctx = ctx, .parameters = list};
    settings.parallel = &parallel;
    settings.blocks = &blocks;
    RopeTable table =
        make_rope_table(ctx, {.interleaved = true}, kLatentTokens, sizes.heads.rotary);
    AttentionOptions options = latent_options(sizes, bias);
    options.rope = &table;
    const Dim embed{"embed", kLatentWidth};
    Norm norm(Scope(settings) / "norm", Norm::Kind::rms, embed, 1e-5f);
    LatentAttention attention(Scope(settings) / "attn", embed, options, sizes);
    list.allocate_gradients(ctx);
    list.clear_gradients();
    const int64_t count = layout.sequence ? kLatentTokens / layout.ranks : kLatentTokens,
                  first = layout.sequence ? count * world.rank() : 0;
    Tensor own = make(ctx, latent_rows(x, first, count), {count, kLatentWidth}, DType::f32);
    if (layout.ranks > 1) own.set_placement(parallel.residual_placement());
    auto target = std::make_shared<Catcher>();
    own.set_node(target);
    Tensor y = attention(norm(own), some_input(ctx), own);
    const auto kept = static_cast<int64_t>(ctx.memory().in_use());
    backward(y, make(ctx, latent_rows(dy, first, count), y.shape(), DType::f32));
    Values got = values_of(y), grad = values_of(target->grad);
    std::lock_guard lock(mutex);
    out.kept = kept;
    std::copy(got.begin(), got.end(), out.y.begin() + first * kLatentWidth);
    std::copy(grad.begin(), grad.end(), out.dx.begin() + first * kLatentWidth);
    add_gradients(list, out.gradients);
  });
  return out;
}

const std::vector<std::pair<const char*, std::pair<LatentSizes, bool>>>& latent_variants() {
  static const std::vector<std::pair<const char*, std::pair<LatentSizes, bool>>> all = {
      {"latents of both", {sizes_of(7), false}},
      {"queries without a latent", {sizes_of(0), false}},
      {"biases", {sizes_of(7), true}},
      {"values wider than queries", {sizes_of(7, {4, 2, 4, 9}), false}},
      {"equal widths", {sizes_of(0, {8, 4, 2, 6}), true}}};
  return all;
}

TEST_CASE("latent attention: tensor-parallel ranks compute what one rank computes") {
  for (const auto& [name, variant] : latent_variants()) {
    const auto& [sizes, bias] = variant;
    const LatentOutcome want = play_latent(sizes, bias, {});
    for (int ranks : {2, 4})
      for (bool sequence : {false, true}) {
        const std::string what = cat(name, ", ", ranks, " ranks", sequence ? ", sequence" : "");
        const LatentOutcome got = play_latent(sizes, bias, {ranks, sequence});
        check_close(got.y, want.y, DType::f32, {.sums = 64}, what);
        check_close(got.dx, want.dx, DType::f32, {.sums = 256}, what + ": dx");
        REQUIRE(got.gradients.size() == want.gradients.size());
        for (const auto& [parameter, gradient] : want.gradients)
          check_close(got.gradients.at(parameter), gradient, DType::f32, {.sums = 256},
                      cat(what, ": ", parameter));
      }
  }
}

TEST_CASE("latent attention: what is computed again in backward has the same bits") {
  using enum RecomputePart;
  for (const auto& [name, variant] : latent_variants())
    for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true}}) {
      const LatentOutcome want = play_latent(variant.first, variant.second, layout);
      for (const auto& parts : std::vector<std::vector<RecomputePart>>{
               {mla_up_proj}, {layernorm}, {core_attn, mla_up_proj}, {mla_up_proj, layernorm}}) {
        INFO(std::string(name), ", ", layout.ranks, " ranks, ", parts.size(), " parts");
        Layout other = layout;
        other.again = parts;
        const LatentOutcome got = play_latent(variant.first, variant.second, other);
        CHECK(got.y == want.y);
        CHECK(got.dx == want.dx);
        CHECK(got.gradients == want.gradients);
        // What ranks have gathered of a norm cannot be computed again.
        const bool gathered = layout.sequence && parts[0] == layernorm;
        CHECK((gathered ? got.kept <= want.kept : got.kept < want.kept));
      }
    }
}

// With the up projections as its matrices, plain attention computes the same: of one head, without
// a latent of queries, from the normalized latent and the rotary part as inputs.
TEST_CASE("latent attention: the composition that its settings say") {
  Fixture lab{1};
  ExecutionContext& ctx = lab.context();
  ParamList list;
  BuildSettings settings{.ctx = ctx, .parameters = list};
  const LatentSizes sizes = sizes_of(0, {.heads = 3, .plain = 3, .rotary = 2, .value = 4});
  const LatentHeads& h = sizes.heads;
  RopeTable table = make_rope_table(ctx, {}, kLatentTokens, h.rotary);
  AttentionOptions options = latent_options(sizes);
  options.rope = &table;
  LatentAttention layer(Scope(settings) / "attn", {"embed", kLatentWidth}, options, sizes);
  auto matrix = [&](const char* name) { return values_of(list.find(cat("attn.", name))->master); };
  const Values x = random_values(kLatentTokens * kLatentWidth, "x");
  auto product = [&](const Values& in, const char* name, int64_t width, int64_t out) {
    return reference::linear(in, matrix(name), {}, kLatentTokens, width, out);
  };
  const Values q = product(x, "q.weight", kLatentWidth, h.heads * h.query()),
               latent = reference::rms_norm(
                   product(x, "kv_down.weight", kLatentWidth, sizes.kv_rank),
                   matrix("kv_norm.weight"), kLatentTokens, sizes.kv_rank, sizes.norm_eps),
               kv = product(latent, "kv_up.weight", sizes.kv_rank, h.heads * (h.plain + h.value)),
               k_rope = product(x, "k_rope.weight", kLatentWidth, h.rotary);
  const std::vector<int> position = {0, 1, 2, 0, 1, 2, 3, 4}, begin = {0, 0, 0, 3, 3, 3, 3, 3};
  auto turned = [&](Values part, int64_t t) {  // by theta^0 = 1 per position
    const double c = std::cos(position[static_cast<size_t>(t)]),
                 s = std::sin(position[static_cast<size_t>(t)]);
    return Values{part[0] * c - part[1] * s, part[1] * c + part[0] * s};
  };
  auto slice = [](const Values& v, int64_t at, int64_t count) {
    return Values(v.begin() + at, v.begin() + at + count);
  };
  Values heads;
  for (int64_t t = 0; t < kLatentTokens; ++t)
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t of_q = (t * h.heads + head) * h.query();
      const Values q_rope = turned(slice(q, of_q + h.plain, h.rotary), t);
      Values out(static_cast<size_t>(h.value));
      double sum = 0;
      for (int64_t s = begin[static_cast<size_t>(t)]; s <= t; ++s) {
        const int64_t of_k = (s * h.heads + head) * (h.plain + h.value);
        const Values k = turned(slice(k_rope, s * h.rotary, h.rotary), s);
        double score = q_rope[0] * k[0] + q_rope[1] * k[1];
        for (int64_t i = 0; i < h.plain; ++i)
          score += q[static_cast<size_t>(of_q + i)] * kv[static_cast<size_t>(of_k + i)];
        const double weight = std::exp(0.3 * score);
        sum += weight;
        for (int64_t i = 0; i < h.value; ++i)
          out[static_cast<size_t>(i)] += weight * kv[static_cast<size_t>(of_k + h.plain + i)];
      }
      for (double v : out) heads.push_back(v / sum);
    }
  const Values want = product(heads, "out.weight", h.heads * h.value, kLatentWidth);
  Tensor y = layer(make(ctx, x, {kLatentTokens, kLatentWidth}, DType::f32), some_input(ctx));
  check_close(values_of(y), want, DType::f32, {.sums = 256}, "latent attention");
}

TEST_CASE("latent attention: parameters, and what is refused") {
  Fixture lab{1};
  auto shapes = [&](const LatentSizes& sizes, const AttentionOptions& options) {
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    LatentAttention layer(Scope(settings) / "a", {"embed", kLatentWidth}, options, sizes);
    std::map<std::string, Shape> out;
    for (const Parameter& p : list.all()) {
      out[p.name] = p.global;
      CHECK(p.decay == (p.global.rank() == 2));
    }
    return out;
  };
  using Shapes = std::map<std::string, Shape>;
  CHECK(shapes(sizes_of(7), latent_options(sizes_of(7))) == Shapes{{"a.q_down.weight", {7, 12}},
                                                                   {"a.q_norm.weight", {7}},
                                                                   {"a.q_up.weight", {28, 7}},
                                                                   {"a.kv_down.weight", {6, 12}},
                                                                   {"a.kv_norm.weight", {6}},
                                                                   {"a.kv_up.weight", {36, 6}},
                                                                   {"a.k_rope.weight", {2, 12}},
                                                                   {"a.out.weight", {12, 16}}});
  CHECK(shapes(sizes_of(0), latent_options(sizes_of(0), true)) ==
        Shapes{{"a.q.weight", {28, 12}},
               {"a.kv_down.weight", {6, 12}},
               {"a.kv_down.bias", {6}},
               {"a.kv_norm.weight", {6}},
               {"a.kv_up.weight", {36, 6}},
               {"a.k_rope.weight", {2, 12}},
               {"a.k_rope.bias", {2}},
               {"a.out.weight", {12, 16}},
               {"a.out.bias", {12}}});
  AttentionOptions gated = latent_options(sizes_of(0)), limited = gated, normed = gated;
  gated.gate = true, limited.clip = 1, normed.qk_norm = QkNormOptions{};
  for (const AttentionOptions& options : {gated, limited, normed})
    CHECK_THROWS_AS(shapes(sizes_of(0), options), Error);
}

TEST_CASE("latent attention: the factor of logits has that of yarn") {
  DecoderSettings c;
  c.latent = sizes_of(0, {4, 128, 64, 128});
  CHECK(c.latent_scale() == doctest::Approx(1 / std::sqrt(192.0)));
  c.rope.scaling = "yarn", c.rope.factor = 40, c.rope.mscale_all_dim = 1;
  const double mscale = 0.1 * std::log(40.0) + 1;
  CHECK(c.latent_scale() == doctest::Approx(mscale * mscale / std::sqrt(192.0)));
  c.rope.scaling = "linear";
  CHECK(c.latent_scale() == doctest::Approx(1 / std::sqrt(192.0)));
}

}  // namespace
}  // namespace mtrain
