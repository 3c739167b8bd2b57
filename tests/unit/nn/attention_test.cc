// Attention with norms of heads, biases, limits and a gate: parameters, and tensor-parallel ranks
// against one rank, also where ranks share a key/value head.
#include "mtrain/nn/attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/attention_variants.h"
#include "unit/nn/whole_gradients.h"

namespace mtrain {
namespace {

using namespace contract;
using Rows = HeadNormForm::Rows;

constexpr int64_t kAttentionTokens = 8, kAttentionWidth = 12;
const HeadLayout kLayout{8, 2, 4};

AttentionOptions with_norm(Rows rows, bool layer = false, bool bias = false) {
  return {.layout = kLayout,
          .qk_norm = QkNormOptions{.rows = rows, .layer = layer, .bias = bias, .eps = 1e-5f},
          .init_std = 0.4f,
          .out_init_std = 0.4f};
}

std::vector<std::pair<const char*, AttentionOptions>> attention_variants() {
  AttentionOptions biased{.layout = kLayout, .bias = true, .init_std = 0.4f, .out_init_std = 0.4f};
  AttentionOptions queries = biased;
  queries.out_bias = false;
  AttentionOptions gated = with_norm(Rows::head);
  gated.bias = gated.gate = true, gated.clip = 0.6f;
  return {{"all biases", biased},
          {"biases of queries, keys and values", queries},
          {"norm of heads", with_norm(Rows::head)},
          {"LayerNorm of heads", with_norm(Rows::head, true, true)},
          {"LayerNorm of heads with own weights", with_norm(Rows::own_head, true, true)},
          {"norm of all heads", with_norm(Rows::all_heads)},
          {"gate and limit", gated}};
}

struct AttentionOutcome {
  Values y = Values(kAttentionTokens * kAttentionWidth),
         dx = Values(kAttentionTokens * kAttentionWidth);
  std::map<std::string, Values> gradients;
};

/// Biases and norms start at 0 and 1: other values, the same on all ranks.
void change_values(const ParamList& list, ExecutionContext& ctx) {
  for (const Parameter& p : list.all()) {
    if (p.role != ParamRole::norm && p.role != ParamRole::bias) continue;
    Values all = random_values(p.global.numel(), p.name, 0.4);
    std::vector<float> own(static_cast<size_t>(p.numel()));
    ctx.download(p.master, own.data());
    for (const ParamBox& box : p.boxes())
      for_each_run(box.global, p.global, box.local, p.local,
                   [&](int64_t global, int64_t local, int64_t count) {
                     for (int64_t i = 0; i < count; ++i)
                       own[static_cast<size_t>(local + i)] +=
                           static_cast<float>(all[static_cast<size_t>(global + i)]);
                   });
    ctx.upload(p.master, own.data());
  }
}

Values attention_rows(const Values& all, int64_t first, int64_t count) {
  return Values(all.begin() + first * kAttentionWidth,
                all.begin() + (first + count) * kAttentionWidth);
}

AttentionOutcome play_attention(AttentionOptions options, int ranks, bool sequence) {
  AttentionOutcome out;
  std::mutex mutex;
  const Values x = random_values(kAttentionTokens * kAttentionWidth, "x"),
               dy = random_values(kAttentionTokens * kAttentionWidth, "dy");
  run_ranks(ranks, [&](Communicator& world) {
    const int64_t copies = std::max<int64_t>(1, ranks / kLayout.groups);
    Mesh mesh(world, MeshLayout({{"group", ranks / copies}, {"kv_copy", copies}}));
    ParallelContext parallel{.tp = &mesh.joint({"group", "kv_copy"}),
                             .sequence_parallel = sequence,
                             .kv_copies = &mesh["kv_copy"],
                             .tracks_placements = true};
    Fixture lab{1};
    ExecutionContext& ctx = lab.context();
    if (ranks > 1)
      ctx.tracked_axis = {.axis = parallel.tp, .residual = parallel.residual_placement()};
    ParamList list;
    BuildSettings settings{.ctx = ctx, .parameters = list};
    settings.parallel = &parallel;
    RopeTable table = make_rope_table(ctx, {}, kAttentionTokens, kLayout.head_dim);
    options.rope = &table;
    Attention attention(Scope(settings) / "attn", {"embed", kAttentionWidth}, options);
    change_values(list, ctx);
    list.allocate_gradients(ctx);
    list.clear_gradients();
    ModelInput input{
        .positions_T = make_ids(ctx, {0, 1, 2, 0, 1, 2, 3, 4}),
        .bounds = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 3, 8})};
    const int64_t count = sequence ? kAttentionTokens / ranks : kAttentionTokens,
                  first = sequence ? count * world.rank() : 0;
    Tensor own = make(ctx, attention_rows(x, first, count), {count, kAttentionWidth}, DType::f32);
    if (ranks > 1) own.set_placement(parallel.residual_placement());
    auto target = std::make_shared<Catcher>();
    own.set_node(target);
    Tensor y = attention(own, input, own);
    backward(y, make(ctx, attention_rows(dy, first, count), y.shape(), DType::f32));
    Values got = values_of(y), grad = values_of(target->grad);
    std::lock_guard lock(mutex);
    std::copy(got.begin(), got.end(), out.y.begin() + first * kAttentionWidth);
    std::copy(grad.begin(), grad.end(), out.dx.begin() + first * kAttentionWidth);
    add_gradients(list, out.gradients);
  });
  return out;
}

TEST_CASE("attention: tensor-parallel ranks compute what one rank computes") {
  for (const auto& [name, options] : attention_variants()) {
    const AttentionOutcome want = play_attention(options, 1, false);
    for (int ranks : {2, 4, 8})
      for (bool sequence : {false, true}) {
        const std::string what = cat(name, ", ", ranks, " ranks", sequence ? ", sequence" : "");
        const AttentionOutcome got = play_attention(options, ranks, sequence);
        check_close(got.y, want.y, DType::f32, {.sums = 64}, what);
        check_close(got.dx, want.dx, DType::f32, {.sums = 128}, what + ": dx");
        REQUIRE(got.gradients.size() == want.gradients.size());
        for (const auto& [parameter, gradient] : want.gradients)
          check_close(got.gradients.at(parameter), gradient, DType::f32, {.sums = 128},
                      cat(what, ": ", parameter));
      }
  }
}

TEST_CASE("attention: names and shapes of the parameters of each variant") {
  auto shapes = [](const AttentionOptions& options) {
    Fixture lab{1};
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    Attention attention(Scope(settings) / "attn", {"embed", kAttentionWidth}, options);
    std::map<std::string, Shape> out;
    for (const Parameter& p : list.all()) {
      if (p.name != "attn.qkv.weight" && p.name != "attn.out.weight") out[p.name] = p.global;
      const bool matrix = p.name.ends_with("qkv.weight") || p.name == "attn.out.weight" ||
                          p.name == "attn.gate.weight";
      CHECK(p.decay == matrix);
      if (p.role == ParamRole::norm) CHECK(p.matrices.empty());
    }
    return out;
  };
  using Shapes = std::map<std::string, Shape>;
  CHECK(shapes({.layout = kLayout}).empty());
  CHECK(shapes({.layout = kLayout, .bias = true}) ==
        Shapes{{"attn.qkv.bias", {48}}, {"attn.out.bias", {12}}});
  CHECK(shapes({.layout = kLayout, .bias = true, .out_bias = false}) ==
        Shapes{{"attn.qkv.bias", {48}}});
  CHECK(shapes({.layout = kLayout, .out_bias = true}) == Shapes{{"attn.out.bias", {12}}});
  CHECK(shapes(with_norm(Rows::head, true, true)) == Shapes{{"attn.q_norm.weight", {4}},
                                                            {"attn.q_norm.bias", {4}},
                                                            {"attn.k_norm.weight", {4}},
                                                            {"attn.k_norm.bias", {4}}});
  CHECK(shapes(with_norm(Rows::own_head, true)) ==
        Shapes{{"attn.q_norm.weight", {8, 4}}, {"attn.k_norm.weight", {2, 4}}});
  CHECK(shapes(with_norm(Rows::all_heads)) ==
        Shapes{{"attn.q_norm.weight", {32}}, {"attn.k_norm.weight", {8}}});
  CHECK(shapes({.layout = kLayout, .bias = true, .out_bias = false, .gate = true}) ==
        Shapes{{"attn.qkv.bias", {48}}, {"attn.gate.weight", {32, 12}}, {"attn.gate.bias", {32}}});
  CHECK_THROWS_AS(shapes(with_norm(Rows::all_heads, true)), Error);
}

TEST_CASE("attention variants: which blocks have rotary positions") {
  auto blocks = [](const AttentionVariants& a) {
    std::string out;
    for (int64_t i = 0; i < 8; ++i) out += a.has_rope(i) ? 'r' : '-';
    return out;
  };
  AttentionVariants a;
  CHECK(blocks(a) == "rrrrrrrr");
  a.no_rope_interval = 4;
  CHECK(blocks(a) == "rrr-rrr-");
  a.check(8);
  a.rope_pattern = {1, 0, 0};
  CHECK_THROWS_AS(a.check(8), Error);
  a.no_rope_interval = 0;
  a.check(8);
  CHECK(blocks(a) == "r--r--r-");
  a.rope_pattern = {0};
  CHECK(blocks(a) == "--------");
}

}  // namespace
}  // namespace mtrain
