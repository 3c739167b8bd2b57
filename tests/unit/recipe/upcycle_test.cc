// Experts that start from a dense MLP: names, shapes, values, and what is refused.
#include "mtrain/recipe/upcycle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;

namespace {

FieldSpec field(const char* path, FieldType type, const char* value, Fact fact = Fact::none) {
  FieldSpec spec;
  spec.path = path;
  spec.type = type;
  spec.default_value = value;
  spec.fact = fact;
  return spec;
}

Schema expert_schema() {
  using enum FieldType;
  return {.name = "experts",
          .doc = "",
          .fields = {field("layers", integer, "4", Fact::layers),
                     field("ffn_hidden_size", integer, "12"), field("mlp_bias", boolean, "false"),
                     field("moe.experts", integer, "4", Fact::experts),
                     field("moe.top_k", integer, "2"), field("moe.ffn_hidden_size", integer, "0"),
                     field("moe.shared_ffn_hidden_size", integer, "0"),
                     field("moe.swish_factor", number, "1"),
                     field("moe.first_dense_layers", integer, "1"),
                     field("moe.layer_freq", integer, "2"),
                     field("moe.router.score", string, "softmax"),
                     field("moe.router.pre_softmax", boolean, "false"),
                     field("moe.router.normalize", string, "auto"),
                     field("moe.router.scaling", number, "1"),
                     field("moe.router.groups", integer, "0")},
          .needs = ""};
}

/// The settings that are refused.
std::string refused(const std::string& section, int64_t dense = 12) {
  const Schema plugin = expert_schema();
  const Node settings = parse_yaml(section, "test");
  std::string out;
  for (const UpcycleFault& fault : upcycle_faults(HfModel(settings, plugin), dense))
    out += (out.empty() ? "" : " ") + fault.setting;
  return out;
}

Upcycling how(const std::string& section) {
  const Schema plugin = expert_schema();
  const Node settings = parse_yaml(section, "test");
  return upcycling_of(HfModel(settings, plugin), 12);
}

}  // namespace

TEST_CASE("the MLPs of blocks with experts become experts") {
  const Schema plugin = expert_schema();
  const Node settings = parse_yaml("{}", "test");
  const HfModel model(settings, plugin);  // blocks 2 and 4, … have experts
  CHECK(upcycled_name(model, "layers.2.mlp.gate.weight") == "layers.2.mlp.experts.gate.weight");
  CHECK(upcycled_name(model, "layers.12.mlp.down.weight") == "layers.12.mlp.experts.down.weight");
  for (const std::string same :
       {"layers.0.mlp.gate.weight", "layers.1.mlp.up.weight", "layers.2.attn.qkv.weight",
        "layers.2.mlp.gate.bias", "layers.x.mlp.gate.weight", "embed.weight", "layers."})
    CHECK(upcycled_name(model, same) == same);
  CHECK(is_upcycled("layers.2.mlp.experts.up.weight"));
  CHECK_FALSE(is_upcycled("layers.2.mlp.experts.up.bias"));
  CHECK_FALSE(is_upcycled("layers.2.mlp.router.weight"));
}

TEST_CASE("the factor is the number of parts by the sum of the routing weights") {
  CHECK(how("{}").parts == 1);
  CHECK(how("{}").scale == 1);
  CHECK(how("{moe: {ffn_hidden_size: 4, router: {scaling: 2}}}").parts == 3);
  CHECK(how("{moe: {ffn_hidden_size: 4, router: {scaling: 2}}}").scale == 1.5);
}

TEST_CASE("experts are parts of the rows of gate and up, and of the columns of down") {
  const Upcycling two{.experts = 4, .parts = 2, .scale = 2};
  // Dense gate [4, 3], experts' [4, 2, 3]; dense down [3, 4], experts' [4, 3, 2].
  const Shape gate{4, 2, 3}, down{4, 3, 2};
  CHECK(dense_shape(two, "layers.0.mlp.experts.gate.weight", gate) == Shape{4, 3});
  CHECK(dense_shape(two, "layers.0.mlp.experts.down.weight", down) == Shape{3, 4});
  std::vector<float> dense(12);
  std::iota(dense.begin(), dense.end(), 0.0F);
  const std::vector<float> gates = upcycled(two, "layers.0.mlp.experts.gate.weight", gate, dense),
                           downs = upcycled(two, "layers.0.mlp.experts.down.weight", down, dense);
  REQUIRE(gates.size() == 24);
  for (size_t i = 0; i < gates.size(); ++i) CHECK(gates[i] == dense[i % 12]);
  const std::vector<float> first = {0, 2, 8, 10, 16, 18}, second = {4, 6, 12, 14, 20, 22};
  for (size_t e = 0; e < 4; ++e)
    CHECK(std::vector<float>(downs.begin() + static_cast<std::ptrdiff_t>(e * 6),
                             downs.begin() + static_cast<std::ptrdiff_t>(e * 6 + 6)) ==
          (e % 2 == 0 ? first : second));
  std::vector<float> router = {1, 2, 3, 4, 5, 6, 7, 8};
  share_rows(two, router);
  CHECK(router == std::vector<float>{1, 2, 1, 2, 5, 6, 5, 6});
}

TEST_CASE("settings with which a model does not start with the dense one's function are refused") {
  CHECK(refused("{}").empty());
  CHECK(refused("{moe: {top_k: 1}}").empty());
  CHECK(refused("{moe: {ffn_hidden_size: 6}}").empty());
  CHECK(refused("{mlp_bias: true}") == "mlp_bias");
  CHECK(refused("{moe: {shared_ffn_hidden_size: 6}}") == "moe.shared_ffn_hidden_size");
  CHECK(refused("{moe: {swish_factor: 1.0}}").empty());
  CHECK(refused("{moe: {swish_factor: 1.5}}") == "moe.swish_factor");
  CHECK(refused("{moe: {ffn_hidden_size: 5}}") == "moe.ffn_hidden_size");
  CHECK(refused("{ffn_hidden_size: 6}").empty());
  CHECK(refused("{ffn_hidden_size: 7}") == "ffn_hidden_size");
  CHECK(refused("{moe: {ffn_hidden_size: 24}}") == "moe.ffn_hidden_size");
  CHECK(refused("{moe: {ffn_hidden_size: 4}}") == "moe.experts moe.top_k");
  CHECK(refused("{moe: {ffn_hidden_size: 6, router: {groups: 4}}}") == "moe.router.groups");
  CHECK(refused("{moe: {router: {pre_softmax: true}}}") == "moe.router.normalize");
  CHECK(refused("{moe: {router: {pre_softmax: true, normalize: always}}}").empty());
  CHECK(refused("{moe: {router: {score: sigmoid}}}").empty());
  CHECK(refused("{moe: {top_k: 1, router: {score: sigmoid}}}") == "moe.router.normalize");
  CHECK(refused("{moe: {router: {score: sigmoid, normalize: never}}}") == "moe.router.normalize");
}

TEST_CASE("a folder that does not say how wide its MLP is is refused") {
  for (int64_t dense : {0, -64}) CHECK(refused("{ffn_hidden_size: 6}", dense) == "ffn_hidden_size");
}

TEST_CASE("a dense model whose settings the one with experts lacks is refused") {
  const Schema plugin = expert_schema();
  Schema dense{.name = "dense",
               .doc = "",
               .fields = {field("layers", FieldType::integer, "4")},
               .needs = ""};
  CHECK(not_upcyclable(dense, plugin).empty());
  CHECK(not_upcyclable(plugin, plugin) == "it has experts already");
  CHECK(not_upcyclable(dense, dense) == "models of the plugin dense have no experts");
  Schema other = dense;
  other.name = "other";
  CHECK(not_upcyclable(dense, other) == "models of the plugin other have no experts");
  dense.fields.push_back(field("positions", FieldType::integer, "4"));
  CHECK(not_upcyclable(dense, plugin).find("model.positions") != std::string::npos);
}
