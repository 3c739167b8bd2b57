// The variants of a decoder's block: each is the composition that its settings say, and dropping
// the results of norms until backward changes no bit of it, on one rank and on several.
#include "mtrain/nn/transformer_block.h"

#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kBlockTokens = 8, kBlockWidth = 12, kBlockHeads = 4, kBlockFfn = 10;

struct BlockVariant {
  const char* name;
  void (*change)(DecoderSettings&);
};

const BlockVariant kVariants[] = {
    {"llama", [](DecoderSettings&) {}},
    {"gemma 2",
     [](DecoderSettings& c) {
       c.block.norm_position = "sandwich", c.block.norm_zero_centered = true;
       c.block.activation = "gelu_new";
     }},
    {"olmo 2", [](DecoderSettings& c) { c.block.norm_position = "post"; }},
    {"olmo", [](DecoderSettings& c) { c.block.norm = "layer", c.block.norm_weight = false; }},
    {"gpt-neox",
     [](DecoderSettings& c) {
       c.block.norm = "layer", c.block.parallel = "two_norms", c.rope.percent = 0.67;
       c.block.mlp_gated = false, c.block.activation = "gelu", c.block.mlp_bias = true;
     }},
    {"cohere",
     [](DecoderSettings& c) {
       c.block.norm = "layer", c.block.norm_bias = false, c.block.parallel = "one_norm";
       c.rope.interleaved = true;
     }},
    {"granite", [](DecoderSettings& c) { c.block.residual_multiplier = 0.25; }},
    {"nemotron",
     [](DecoderSettings& c) {
       c.block.norm = "layer", c.block.norm_zero_centered = true;
       c.block.mlp_gated = false, c.block.activation = "squared_relu";
     }},
    {"side by side, norms after",
     [](DecoderSettings& c) {
       c.block.norm_position = "post", c.block.parallel = "two_norms";
       c.block.mlp_gated = false, c.block.activation = "relu", c.block.residual_multiplier = 2;
     }},
};

DecoderSettings settings_of(const BlockVariant& variant) {
  DecoderSettings c;
  c.layers = 2, c.hidden_size = kBlockWidth, c.heads = kBlockHeads, c.kv_heads = 2,
  c.ffn_hidden_size = kBlockFfn;
  c.head_dim = 6, c.init_std = 0.4;
  variant.change(c);
  c.check();
  return c;
}

/// A rank with one block. `tensor`: the axis of its tensor-parallel group, or null.
struct BlockPlace {
  explicit BlockPlace(const DecoderSettings& c, const Axis* tensor = nullptr, bool sequence = false,
                      bool drop_norms = false)
      : config(c) {
    if (drop_norms) plan.parts = {RecomputePart::layernorm};
    parallel.tp = tensor, parallel.sequence_parallel = sequence;
    rope = make_rope_table(lab.context(), c.rope, kBlockTokens, 6);
    block.emplace(c, Scope(settings) / "layers" / 1, 1, rope);
    for (const auto& p : list.all())  // no weight is left out unseen
      if (p.master.shape().rank() == 1)
        list.find(p.name)->value =
            make(lab.context(), random_values(p.global[0], p.name, 0.3), {p.global[0]}, DType::f32)
                .slice(0, first_of(p), first_of(p) + p.local[0]);
    list.allocate_gradients(lab.context());
    list.clear_gradients();
  }
  int64_t first_of(const Parameter& p) const {
    return p.local[0] == p.global[0] ? 0 : p.local[0] * axis_index(parallel.tp);
  }
  Tensor of(std::string_view name) {
    Parameter* p = list.find(cat("layers.1.", name));
    return p ? p->value : Tensor();
  }
  ModelInput input() {
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < kBlockTokens; ++t) positions.push_back(t % 5);
    return {.positions_T = make_ids(lab.context(), positions),
            .bounds = std::make_shared<const std::vector<int32_t>>(
                std::vector<int32_t>{0, 5, static_cast<int32_t>(kBlockTokens)})};
  }
  /// The rows of a whole [kTokens, kWidth] that this rank has of the stream.
  Tensor own(const char* key) {
    Tensor whole = make(lab.context(), random_values(kBlockTokens * kBlockWidth, key),
                        {kBlockTokens, kBlockWidth}, DType::f32);
    if (!active_axis(parallel.tp) || !parallel.sequence_parallel) return whole;
    const int64_t rows = kBlockTokens / parallel.tp->size(), first = rows * parallel.tp->index();
    Tensor part = lab.context().empty({rows, kBlockWidth}, DType::f32);
    lab.context().copy(part, whole.slice(0, first, first + rows));
    return part;
  }

  DecoderSettings config;
  Fixture lab{1};
  ParallelContext parallel;
  BlockPlan plan;
  ParamList list;
  BuildSettings settings{
      .ctx = lab.context(), .parameters = list, .parallel = &parallel, .blocks = &plan};
  RopeTable rope;
  std::optional<TransformerBlock> block;
};

/// The block's result by its definition, in single ops.
Tensor block_by_definition(BlockPlace& place, const Tensor& x) {
  const DecoderSettings& c = place.config;
  const BlockSettings& b = c.block;
  const HeadLayout layout = c.head_layout();
  const ModelInput input = place.input();
  auto norm = [&](const Tensor& in, const std::string& name) {
    Tensor w = place.of(name + ".weight");
    const float offset = b.norm_zero_centered || !b.norm_weight ? 1 : 0;
    return b.norm == "rms" ? rms_norm(in, w, c.eps(), offset)
                           : layer_norm(in, w, place.of(name + ".bias"), c.eps(), offset);
  };
  auto through = [&](const Tensor& in, const std::string& name) {
    return linear(in, place.of(name + ".weight"), place.of(name + ".bias"));
  };
  auto attend = [&](const Tensor& in) {
    Tensor qkv = rope(through(in, "attn.qkv"), layout, place.rope, input.positions_T);
    return through(attention(qkv, layout, input.bounds, {.scale = 1 / std::sqrt(6.0f)}),
                   "attn.out");
  };
  auto activated = [&](const Tensor& in) {
    if (b.activation == "silu")
      return silu_mul(in, make(in.context(), Values(static_cast<size_t>(in.numel()), 1.0),
                               in.shape(), DType::f32));
    if (b.activation.ends_with("relu"))
      return relu(in, b.activation == "relu" ? ReluKind::plain : ReluKind::squared);
    return gelu(in, b.activation == "gelu" ? GeluKind::erf : GeluKind::tanh);
  };
  auto mlp = [&](const Tensor& in) {
    if (!b.mlp_gated) return through(activated(through(in, "mlp.up")), "mlp.down");
    return through(mul(activated(through(in, "mlp.gate")), through(in, "mlp.up")), "mlp.down");
  };
  const bool before = b.norm_position != "post", after = b.norm_position != "pre";
  auto scaled = [&](const Tensor& in) {
    return scale(in, static_cast<float>(b.residual_multiplier));
  };
  Tensor a = attend(before ? norm(x, "norm1") : x);
  Tensor y = add(x, scaled(after ? norm(a, "norm1_after") : a));
  const Tensor& from = b.parallel == "none" ? y : x;
  Tensor m = mlp(!before                    ? from
                 : b.parallel == "one_norm" ? norm(x, "norm1")
                                            : norm(from, "norm2"));
  return add(y, scaled(after ? norm(m, "norm2_after") : m));
}

TEST_CASE("transformer block: every variant is the composition that its settings say") {
  for (const BlockVariant& variant : kVariants) {
    INFO(std::string(variant.name));
    BlockPlace place(settings_of(variant));
    Tensor x = place.own("x");
    check_close(values_of((*place.block)(x, place.input())),
                values_of(block_by_definition(place, x)), DType::f32, {.sums = 64}, variant.name);
  }
}

TEST_CASE("transformer block: parameters of a variant, and no others") {
  auto names = [](const BlockVariant& variant) {
    BlockPlace place(settings_of(variant));
    std::string all;
    for (const auto& p : place.list.all())
      if (p.name.find("norm") != std::string::npos || p.name.find("mlp") != std::string::npos)
        all += p.name.substr(9) + " ";
    return all;
  };
  CHECK(names(kVariants[0]) ==
        "norm1.weight norm2.weight mlp.gate.weight mlp.up.weight mlp.down.weight ");
  CHECK(names(kVariants[1]) ==
        "norm1.weight norm1_after.weight norm2.weight mlp.gate.weight mlp.up.weight "
        "mlp.down.weight norm2_after.weight ");
  CHECK(names(kVariants[2]) ==
        "norm1_after.weight mlp.gate.weight mlp.up.weight mlp.down.weight norm2_after.weight ");
  CHECK(names(kVariants[3]) == "mlp.gate.weight mlp.up.weight mlp.down.weight ");
  CHECK(names(kVariants[4]) ==
        "norm1.weight norm1.bias norm2.weight norm2.bias mlp.up.weight mlp.up.bias "
        "mlp.down.weight mlp.down.bias ");
  CHECK(names(kVariants[5]) == "norm1.weight mlp.gate.weight mlp.up.weight mlp.down.weight ");
}

/// The result, the gradient of the input and those of the parameters.
std::vector<Values> step(BlockPlace& place) {
  auto caught = std::make_shared<Catcher>();
  Tensor x = place.own("x");
  x.set_node(caught);
  // A norm ahead, so that the input of the block is one whose op can compute it again.
  Tensor ones = make(place.lab.context(), Values(kBlockWidth, 1.0), {kBlockWidth}, DType::f32);
  Tensor y = (*place.block)(rms_norm(x, ones, 1e-5f), place.input());
  std::vector<Values> out = {values_of(y)};
  backward(y, place.own("dy"));
  out.push_back(values_of(caught->grad));
  for (const auto& p : place.list.all()) out.push_back(values_of(p.main_grad));
  return out;
}

TEST_CASE("transformer block: norms that are computed again in backward change no bit") {
  for (const BlockVariant& variant : kVariants) {
    INFO(std::string(variant.name));
    const DecoderSettings c = settings_of(variant);
    BlockPlace kept(c), dropped(c, nullptr, false, true);
    CHECK(step(dropped) == step(kept));
    for (bool sequence : {false, true})
      run_ranks(2, [&](Communicator& world) {
        Mesh mesh(world, MeshLayout({{"tp", 2}}));
        BlockPlace whole(c, &mesh["tp"], sequence), part(c, &mesh["tp"], sequence, true);
        std::vector<Values> want = step(whole);
        MT_CHECK(step(part) == want, variant.name, ", sequence ", sequence);
      });
  }
}

TEST_CASE("transformer block: two ranks compute what one computes") {
  for (const BlockVariant& variant : kVariants) {
    const DecoderSettings c = settings_of(variant);
    BlockPlace one(c);
    const std::vector<Values> want = step(one);
    for (bool sequence : {false, true})
      run_ranks(2, [&](Communicator& world) {
        Mesh mesh(world, MeshLayout({{"tp", 2}}));
        BlockPlace place(c, &mesh["tp"], sequence);
        std::vector<Values> got = step(place);
        for (size_t k : {0, 1}) {  // the result and the gradient of the input
          const size_t first = sequence ? got[k].size() * static_cast<size_t>(world.rank()) : 0;
          for (size_t i = 0; i < got[k].size(); ++i)
            MT_CHECK(std::fabs(got[k][i] - want[k][first + i]) <
                         1e-5 * (1 + std::fabs(want[k][first + i])),
                     variant.name, ": ", got[k][i], " and ", want[k][first + i]);
        }
      });
  }
}

struct NoModel final : Decoder {
  using Decoder::Decoder;
  double flops_per_token(int64_t) const override { return 0; }
};

TEST_CASE("decoder: blocks with a window have rotary positions of their own") {
  DecoderSettings c = settings_of(kVariants[0]);
  c.layers = 4, c.attention.window = 3, c.attention.global_interval = 2;
  c.rope.theta = 50, c.rope.scaling = "linear", c.rope.factor = 4;
  auto tables = [&] {
    Fixture lab{1};
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    std::vector<Values> sines;
    NoModel model(c,
                  {.scope = Scope(settings), .vocab_size = 8, .valid_vocab = 8, .max_positions = 2},
                  [&](const Scope&, int64_t, const RopeTable& rope) {
                    sines.push_back(values_of(rope.sin));
                    return std::unique_ptr<DecoderBlock>();
                  });
    return sines;
  };
  std::vector<Values> same = tables();
  CHECK(same[0] == same[1]);
  c.rope.local_theta = 20;
  std::vector<Values> own = tables();
  REQUIRE(own.size() == 4);
  for (size_t i : {0, 2})  // windows; rows of positions 0 and 1, three pairs of a head of six
    for (size_t k = 0; k < 3; ++k)
      CHECK(own[i][3 + k] ==
            doctest::Approx(std::sin(std::pow(20.0, -static_cast<double>(k) / 3))));
  for (size_t i : {1, 3}) CHECK(own[i] == same[i]);
}

TEST_CASE("block settings: those that contradict each other are refused") {
  auto refused = [](void (*change)(DecoderSettings&)) {
    DecoderSettings c;
    change(c);
    CHECK_THROWS_AS(c.check(), Error);
  };
  refused([](DecoderSettings& c) { c.block.activation = "relu"; });
  refused([](DecoderSettings& c) { c.block.mlp_gated = false; });
  refused(
      [](DecoderSettings& c) { c.block.parallel = "one_norm", c.block.norm_position = "post"; });
  refused([](DecoderSettings& c) { c.rope.percent = 0.0001; });
  refused([](DecoderSettings& c) { c.rope.scaling = "longrope", c.rope.short_factor = {1, 2}; });
}

TEST_CASE("block settings: the factor of Gemma's embeddings has the type of the stream") {
  BlockSettings b;
  CHECK(b.embedding_factor(3072, DType::bf16) == 1);
  b.embedding_multiplier = 12;
  CHECK(b.embedding_factor(3072, DType::bf16) == 12);
  b.embedding_multiplier = 0;
  CHECK(b.embedding_factor(3072, DType::f32) == std::sqrt(3072.0f));
  CHECK(b.embedding_factor(3072, DType::bf16) == 55.5f);
}

}  // namespace
}  // namespace mtrain
