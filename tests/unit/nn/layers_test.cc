#include "mtrain/nn/layers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "contract/harness.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/rope_table.h"

namespace mtrain {
namespace {

using namespace contract;

struct Workshop {
  explicit Workshop(DType dtype = DType::f32) : dtype(dtype) {}
  Scope root() { return Scope(settings); }
  ExecutionContext& context() { return lab.context(); }
  Values value(std::string_view name) {
    REQUIRE_MESSAGE(list.find(name) != nullptr, std::string(name));
    return values_of(list.find(name)->value);
  }
  Tensor input(int64_t tokens, int64_t width) {
    return make(context(), random_values(tokens * width, "x"), {tokens, width}, dtype);
  }
  std::set<std::string> names() {
    std::set<std::string> out;
    for (const auto& p : list.all()) out.insert(p.name);
    return out;
  }
  DType dtype;
  Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list, .dtype = dtype};
};

TEST_CASE("layers: parameters, their names, sizes and decay") {
  Workshop shop;
  Dim embed{"embed", 8}, mlp{"mlp", 12};
  Linear linear(shop.root() / "lin", mlp, embed, {.bias = true});
  Norm rms(shop.root() / "rms", Norm::Kind::rms, embed, 1e-5f),
      layer(shop.root() / "ln", Norm::Kind::layer, embed, 1e-5f);
  Attention attention(shop.root() / "attn", embed, {.layout = {4, 2, 2}, .bias = true});
  GatedMlp gated(shop.root() / "gated", embed, mlp, 0.02f, 0.01f);
  Mlp plain(shop.root() / "mlp", embed, mlp, GeluKind::tanh, {.bias = true}, 0.01f);
  CHECK(shop.names() == std::set<std::string>{
                            "lin.weight", "lin.bias", "rms.weight", "ln.weight", "ln.bias",
                            "attn.qkv.weight", "attn.qkv.bias", "attn.out.weight", "attn.out.bias",
                            "gated.gate.weight", "gated.up.weight", "gated.down.weight",
                            "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"});
  for (const auto& p : shop.list.all())
    CHECK_MESSAGE(p.decay == (p.master.shape().rank() == 2), p.name);
  CHECK(shop.list.find("attn.qkv.weight")->master.shape() == Shape{16, 8});
  CHECK(shop.list.find("attn.out.weight")->master.shape() == Shape{8, 8});
  CHECK(shop.list.find("gated.down.weight")->master.shape() == Shape{8, 12});
  CHECK(shop.value("rms.weight") == Values(8, 1.0));
  CHECK(shop.value("ln.bias") == Values(8, 0.0));
}

TEST_CASE("layers: linear, norms and both MLPs compute what they say") {
  Workshop shop;
  Dim embed{"embed", 8}, mlp{"mlp", 12};
  constexpr int64_t kTokens = 5;
  Tensor x = shop.input(kTokens, 8);
  Values in = values_of(x);
  auto close = [&](const Tensor& got, const Values& want, const char* what) {
    check_close(values_of(got), want, DType::f32, {}, what);
  };
  Linear linear(shop.root() / "lin", mlp, embed, {.init_std = 0.5f, .bias = true});
  close(linear(x),
        reference::linear(in, shop.value("lin.weight"), shop.value("lin.bias"), kTokens, 8, 12),
        "linear");
  Norm rms(shop.root() / "rms", Norm::Kind::rms, embed, 1e-5f),
      layer(shop.root() / "ln", Norm::Kind::layer, embed, 1e-5f);
  close(rms(x), reference::rms_norm(in, Values(8, 1.0), kTokens, 8, 1e-5), "rms");
  close(layer(x), reference::layer_norm(in, Values(8, 1.0), {}, kTokens, 8, 1e-5), "layer");

  GatedMlp gated(shop.root() / "gated", embed, mlp, 0.5f, 0.5f);
  auto through = [&](const Values& v, const char* weight, int64_t from, int64_t to) {
    return reference::linear(v, shop.value(weight), {}, kTokens, from, to);
  };
  close(gated(x),
        through(reference::silu_mul(through(in, "gated.gate.weight", 8, 12),
                                    through(in, "gated.up.weight", 8, 12)),
                "gated.down.weight", 12, 8),
        "gated");
  Mlp plain(shop.root() / "mlp", embed, mlp, GeluKind::tanh, {.init_std = 0.5f, .bias = true},
            0.5f);
  close(
      plain(x),
      through(reference::gelu(through(in, "mlp.up.weight", 8, 12), true), "mlp.down.weight", 12, 8),
      "mlp");
}

TEST_CASE(
    "layers: attention scales by the root of the head width, with and without rotary positions") {
  Workshop shop;
  constexpr int64_t kTokens = 7;
  const HeadLayout layout{4, 2, 6};
  const reference::Heads heads{4, 2, 6};
  ModelInput input{
      .positions_T = make_ids(shop.context(), {0, 1, 2, 0, 1, 2, 3}),
      .bounds = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 3, 7})};
  RopeTable table = make_rope_table(shop.context(), {}, 10, 6);
  Tensor x = shop.input(kTokens, 24);
  for (bool rotary : {false, true})
    for (bool causal : {false, true}) {
      std::string name = cat("attn", rotary, causal);
      Attention attention(shop.root() / name, {"embed", 24},
                          {.layout = layout,
                           .causal = causal,
                           .init_std = 0.3f,
                           .rope = rotary ? &table : nullptr});
      Values qkv = reference::linear(values_of(x), shop.value(name + ".qkv.weight"), {}, kTokens,
                                     24, heads.width());
      if (rotary)
        qkv = reference::rope(qkv, heads, 6, values_of(table.cos), values_of(table.sin),
                              {0, 1, 2, 0, 1, 2, 3}, 1);
      Values o = reference::attention(qkv, heads, *input.bounds, {1 / std::sqrt(6.0), causal});
      Values want = reference::linear(o, shop.value(name + ".out.weight"), {}, kTokens, 24, 24);
      check_close(values_of(attention(x, input)), want, DType::f32, {.sums = 32}, name);
    }
}

TEST_CASE("layers: attention with a window, a cap, its own scale and sinks") {
  Workshop shop;
  const HeadLayout layout{4, 2, 6};
  const reference::Heads heads{4, 2, 6};
  ModelInput input{
      .positions_T = make_ids(shop.context(), {0, 1, 2, 0, 1, 2, 3}),
      .bounds = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 3, 7})};
  Tensor x = shop.input(7, 24);
  for (AttentionSinks sinks :
       {AttentionSinks::none, AttentionSinks::zero, AttentionSinks::learned}) {
    std::string name = cat("attn", static_cast<int>(sinks));
    Attention attention(shop.root() / name, {"embed", 24},
                        {.layout = layout,
                         .init_std = 0.3f,
                         .window = 2,
                         .scale = 0.25f,
                         .cap = 0.5f,
                         .sinks = sinks});
    reference::Scores scores{.scale = 0.25, .window = 2, .cap = 0.5};
    if (sinks == AttentionSinks::zero) scores.sinks = Values(4, 0.0);
    if (sinks == AttentionSinks::learned) {
      scores.sinks = shop.value(name + ".sinks");
      CHECK(scores.sinks.size() == 4);
      CHECK(scores.sinks[0] != 0);
      CHECK_FALSE(shop.list.find(name + ".sinks")->decay);
    } else {
      CHECK(shop.list.find(name + ".sinks") == nullptr);
    }
    Values qkv =
        reference::linear(values_of(x), shop.value(name + ".qkv.weight"), {}, 7, 24, heads.width());
    Values o = reference::attention(qkv, heads, *input.bounds, scores);
    Values want = reference::linear(o, shop.value(name + ".out.weight"), {}, 7, 24, 24);
    check_close(values_of(attention(x, input)), want, DType::f32, {.sums = 32}, name);
  }
}

TEST_CASE("attention settings: the blocks that have the window") {
  AttentionVariants v;
  v.window = 8;
  auto windows = [&] {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 4; ++i) all.push_back(v.window_of(i));
    return all;
  };
  CHECK(windows() == std::vector<int64_t>{8, 8, 8, 8});
  v.global_interval = 2;
  CHECK(windows() == std::vector<int64_t>{8, 0, 8, 0});
  v.global_interval = 1;
  CHECK(windows() == std::vector<int64_t>{0, 0, 0, 0});
  v.window_blocks = {0, 1, 1, 0};
  CHECK(windows() == std::vector<int64_t>{0, 8, 8, 0});
  CHECK_NOTHROW(v.check(4));
  CHECK_THROWS_AS(v.check(5), Error);
}

// What a plugin writes for a half of its own: norm, two projections, and the way back.
TEST_CASE("region: projections of a norm that is computed again in backward, to the same bits") {
  constexpr int64_t kTokens = 5;
  Dim embed{"embed", 8}, mlp{"mlp", 12};
  std::vector<Values> kept;
  for (bool again : {false, true}) {
    Workshop shop;
    BlockPlan plan;
    if (again) plan.parts = {RecomputePart::layernorm};
    shop.settings.blocks = &plan;
    Scope s = shop.root();
    Region region(s);
    Norm norm(s / "norm", Norm::Kind::rms, embed, 1e-5f);
    Linear gate(s / "gate", mlp, embed, {.init_std = 0.5f}),
        up(s / "up", mlp, embed, {.init_std = 0.5f}),
        down(s / "down", embed, mlp, {.init_std = 0.5f});
    shop.list.allocate_gradients(shop.context());
    auto caught = std::make_shared<Catcher>();
    Tensor x = shop.input(kTokens, 8);
    x.set_node(caught);
    Tensor normed = norm(x);
    auto [gated, raised] = region.project(normed, {gate, up});
    CHECK(normed.storage()->resident() != again);
    Tensor y = down.leave(region, silu_mul(gated, raised), x);
    std::vector<Values> seen = {values_of(y)};
    backward(y, make(shop.context(), random_values(kTokens * 8, "dy"), {kTokens, 8}, DType::f32));
    seen.push_back(values_of(caught->grad));
    for (const auto& p : shop.list.all()) seen.push_back(values_of(p.main_grad));
    if (again)
      CHECK(seen == kept);
    else
      kept = std::move(seen);
  }
}

TEST_CASE("layers: an embedding with an offset reads and trains the rows after it") {
  constexpr int64_t kRows = 7, kWidth = 4, kOffset = 2;
  Workshop shop;
  Embedding embed(shop.root() / "positions", {"positions", kRows}, {"embed", kWidth}, 0.5f,
                  kOffset);
  CHECK(embed.weight.global == Shape{kRows, kWidth});
  shop.list.allocate_gradients(shop.context());
  const std::vector<int32_t> ids = {0, 4, 1, 0}, rows = {2, 6, 3, 2};
  Tensor y = embed(make_ids(shop.context(), ids));
  CHECK(values_of(y) == reference::embedding(shop.value("positions.weight"), rows, kWidth));
  const Values dy = random_values(std::ssize(ids) * kWidth, "dy");
  backward(y, make(shop.context(), dy, {std::ssize(ids), kWidth}, DType::f32));
  const Values got = values_of(embed.weight.main_grad);
  check_close(got, reference::embedding_backward(dy, rows, kRows, kWidth), DType::f32, {}, "table");
  for (size_t i = 0; i < kOffset * kWidth; ++i) CHECK(got[i] == 0);
}

TEST_CASE(
    "layers: the head gives logits, or losses when there are targets, and a tied matrix gets both "
    "gradients") {
  Workshop shop;
  constexpr int64_t kTokens = 3, kVocab = 10, kValid = 8, kWidth = 4;
  Embedding embed(shop.root() / "embed", {"vocab", kVocab}, {"embed", kWidth}, 0.5f);
  LmHead head(shop.root() / "head", {"vocab", kVocab}, {"embed", kWidth}, kValid, &embed.weight,
              0.5f);
  CHECK(shop.names() == std::set<std::string>{"embed.weight"});
  shop.list.allocate_gradients(shop.context());
  std::vector<int32_t> ids = {1, 7, 1}, targets = {7, -1, 2};
  ModelInput input{.tokens_T = make_ids(shop.context(), ids)};
  Values table = shop.value("embed.weight"), x = reference::embedding(table, ids, kWidth);
  Values logits = reference::linear(x, table, {}, kTokens, kWidth, kVocab);
  check_close(values_of(head(embed(input.tokens_T), input)), logits, DType::f32, {}, "logits");
  input.targets_T = make_ids(shop.context(), targets);
  Tensor loss = head(embed(input.tokens_T), input);
  check_close(values_of(loss), reference::cross_entropy(logits, targets, kVocab, kValid),
              DType::f32, {}, "loss");
  Values dy = {1, 2, 3};
  backward(loss, make(shop.context(), dy, {kTokens}, DType::f32));
  Values d_logits = reference::cross_entropy_backward(dy, logits, targets, kVocab, kValid);
  auto grads = reference::linear_backward(d_logits, x, table, kTokens, kWidth, kVocab);
  check_close(
      values_of(embed.weight.main_grad),
      reference::add(grads[1], reference::embedding_backward(grads[0], ids, kVocab, kWidth)),
      DType::f32, {}, "tied");
}

TEST_CASE(
    "layers: the head's bias is added to every logit, and learns from the losses as they are "
    "computed or later") {
  constexpr int64_t kTokens = 3, kVocab = 10, kValid = 8, kWidth = 4;
  std::vector<int32_t> targets = {7, -1, 2};
  for (float weight : {0.5f, 0.0f}) {  // known: gradients come with the losses
    Workshop shop;
    LmHead head(shop.root() / "head", {"vocab", kVocab}, {"embed", kWidth}, kValid, nullptr, 0.5f,
                true);
    CHECK(shop.names() == std::set<std::string>{"head.weight", "head.bias"});
    shop.list.allocate_gradients(shop.context());
    Parameter& bias = *shop.list.find("head.bias");
    CHECK(!bias.decay);
    Values shift = random_values(kVocab, "bias");
    shop.context().copy(bias.value, make(shop.context(), shift, {kVocab}, DType::f32));
    Tensor x = shop.input(kTokens, kWidth);
    Values in = values_of(x), w = shop.value("head.weight");
    Values logits = reference::linear(in, w, shop.value("head.bias"), kTokens, kWidth, kVocab);
    ModelInput input{.loss_weight = weight};
    check_close(values_of(head(x, input)), logits, DType::f32, {}, "logits");
    input.targets_T = make_ids(shop.context(), targets);
    Tensor loss = head(x, input);
    check_close(values_of(loss), reference::cross_entropy(logits, targets, kVocab, kValid),
                DType::f32, {}, "loss");
    Values dy(kTokens, 0.5);
    backward(loss, make(shop.context(), dy, {kTokens}, DType::f32));
    Values d_logits = reference::cross_entropy_backward(dy, logits, targets, kVocab, kValid),
           want(kVocab, 0.0);
    for (size_t i = 0; i < d_logits.size(); ++i) want[i % kVocab] += d_logits[i];
    check_close(values_of(bias.main_grad), want, DType::f32, {.sums = kTokens}, "bias");
    check_close(values_of(shop.list.find("head.weight")->main_grad),
                reference::linear_backward(d_logits, in, w, kTokens, kWidth, kVocab)[1], DType::f32,
                {.sums = kTokens}, "weight");
  }
}

TEST_CASE("layers: a stage has the blocks of its range, the whole model all of them") {
  CHECK(StageRange{}.layers(7) == std::pair<int64_t, int64_t>{0, 7});
  CHECK(StageRange{.first_layer = 2, .num_layers = 3}.layers(7) ==
        std::pair<int64_t, int64_t>{2, 5});
  CHECK(StageRange{.first_layer = 7, .num_layers = 0}.layers(7) ==
        std::pair<int64_t, int64_t>{7, 7});
  CHECK_THROWS_WITH_AS(StageRange({.first_layer = 5, .num_layers = 3}).layers(7),
                       doctest::Contains("blocks 5 to 8 of 7"), Error);
}

}  // namespace
}  // namespace mtrain
