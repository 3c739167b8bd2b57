// The parts of a stage's model, from the names and roles of its parameters.
#include "mtrain/nn/model_parts.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

struct PartSpec {
  const char* name;
  int64_t stage = 0;
  ParamRole role = ParamRole::matrix;
};

std::deque<Parameter> parameters_of(const std::vector<PartSpec>& specs) {
  std::deque<Parameter> parameters;
  for (const PartSpec& spec : specs) {
    Parameter& p = parameters.emplace_back();
    p.name = spec.name, p.stage = spec.stage, p.role = spec.role;
  }
  return parameters;
}

constexpr auto kTable = ParamRole::embedding, kHead = ParamRole::head;

TEST_CASE("model parts: blocks are named by their number") {
  CHECK(block_of("layers.3.attn.qkv.weight") == "layers.3");
  CHECK(block_of("encoder.layers.12.norm.weight") == "encoder.layers.12");
  CHECK(block_of("layers.1.experts.2.up") == "layers.1");
  CHECK(block_of("embed.weight") == "");
  CHECK(block_of("layer2.weight") == "");
  CHECK(block_of("") == "");
}

TEST_CASE("model parts: what comes before the blocks, each block, what comes after them") {
  auto whole = parameters_of({{"embed.weight", 0, kTable},
                              {"positions.weight", 0, kTable},
                              {"layers.0.norm"},
                              {"layers.0.experts.up", 0, ParamRole::expert_matrix},
                              {"layers.1.mlp"},
                              {"norm.weight"},
                              {"head.weight", 0, kHead}});
  CHECK(parts_of(whole) ==
        std::vector<PartId>{{0, 0}, {0, 0}, {0, 1}, {0, 1}, {0, 2}, {0, 3}, {0, 3}});
  StageParts parts = {{.name = "embed"},
                      {.name = "0", .block = true, .exchanges = true},
                      {.name = "1", .block = true},
                      {.name = "head"}};
  CHECK(stage_parts(whole, 0, true, true, 4) == parts);
  parts[1].exchanges = false;  // experts on one rank exchange nothing
  CHECK(stage_parts(whole, 0, true, true, 1) == parts);
  whole.pop_back();  // a head that is tied reads the embedding's table
  parts[3].also_reads = {PartId{0, 0}};
  CHECK(stage_parts(whole, 0, true, true, 1) == parts);
}

TEST_CASE("model parts: a tied table of another stage, on another rank and on the same one") {
  auto last = parameters_of({{"embed.weight", 3, kTable}, {"layers.7.mlp", 3}, {"norm.weight", 3}});
  CHECK(stage_parts(last, 3, false, true, 1) ==
        StageParts{{.name = "table", .computes = false},
                   {.name = "7", .block = true},
                   {.name = "head", .also_reads = {PartId{3, 0}}}});
  auto both = parameters_of(
      {{"embed.weight", 0, kTable}, {"layers.0.mlp", 0}, {"layers.7.mlp", 3}, {"norm.weight", 3}});
  CHECK(parts_of(both) == std::vector<PartId>{{0, 0}, {0, 1}, {3, 0}, {3, 1}});
  CHECK(stage_parts(both, 0, true, false, 1) ==
        StageParts{{.name = "embed"}, {.name = "0", .block = true}});
  CHECK(stage_parts(both, 3, false, true, 1) ==
        StageParts{{.name = "7", .block = true}, {.name = "head", .also_reads = {PartId{0, 0}}}});
}

TEST_CASE("model parts: stages without blocks") {
  CHECK(stage_parts({}, 0, false, false, 1).empty());
  auto embed = parameters_of({{"embed.weight", 0, kTable}});
  CHECK(stage_parts(embed, 0, true, false, 1) == StageParts{{.name = "embed"}});
  auto head = parameters_of({{"embed.weight", 1, kTable}, {"norm.weight", 1}});
  CHECK(stage_parts(head, 1, false, true, 1) == StageParts{{.name = "head"}});
  auto between = parameters_of({{"down.0.mlp"}, {"middle.mlp"}, {"up.0.mlp"}});
  CHECK(stage_parts(between, 0, false, false, 1) ==
        StageParts{{.name = "0", .block = true}, {.name = "middle"}, {.name = "0", .block = true}});
}

TEST_CASE("model parts: declared in the order of forward, whatever the order of the parameters") {
  auto parameters = parameters_of({{"embed.weight", 0, kTable},
                                   {"norm.weight"},
                                   {"layers.1.mlp"},
                                   {"layers.0.norm"},
                                   {"layers.0.experts.up", 0, ParamRole::expert_matrix}});
  const std::vector<ComputedPart> declared = {
      {"embed"}, {"layers.0"}, {"layers.1"}, {"head", {"norm"}}};
  CHECK(declared_parts(parameters, 0, declared, 4) ==
        StageParts{{.name = "embed"},
                   {.name = "0", .block = true, .exchanges = true},
                   {.name = "1", .block = true},
                   {.name = "head"}});
  CHECK(parts_of(parameters) == std::vector<PartId>{{0, 0}, {0, 3}, {0, 2}, {0, 1}, {0, 1}});
}

TEST_CASE("model parts: parameters that several declared parts read are parts of their own") {
  auto parameters = parameters_of({{"embed.weight", 0, kTable},
                                   {"layers.0.norm"},
                                   {"layers.0.attn.qkv"},
                                   {"layers.0.attn.out"},
                                   {"layers.1.norm"},
                                   {"spare"},
                                   {"norm"}});
  const std::vector<ComputedPart> declared = {
      {"embed"}, {"layers.0"}, {"layers.1", {"layers.0.attn"}}, {"head", {"norm", "embed.weight"}}};
  CHECK(declared_parts(parameters, 0, declared, 1) ==
        StageParts{{.name = "spare", .computes = false},
                   {.name = "embed.weight", .computes = false},
                   {.name = "layers.0.attn", .computes = false},
                   {.name = "embed", .owns = false, .also_reads = {PartId{0, 1}}},
                   {.name = "0", .block = true, .also_reads = {PartId{0, 2}}},
                   {.name = "1", .block = true, .also_reads = {PartId{0, 2}}},
                   {.name = "head", .also_reads = {PartId{0, 1}}}});
  CHECK(parts_of(parameters) ==
        std::vector<PartId>{{0, 1}, {0, 4}, {0, 2}, {0, 2}, {0, 5}, {0, 0}, {0, 6}});
}

TEST_CASE("model parts: a block that is recomputed alone has its whole path as a name") {
  auto parameters =
      parameters_of({{"embed.weight", 0, kTable}, {"layers.0.mlp"}, {"mtp.0.enorm"}, {"norm"}});
  CHECK(declared_parts(parameters, 0,
                       {{"embed"},
                        {"layers.0"},
                        {.scope = "mtp.0", .reads = {"embed", "norm"}, .auxiliary = true},
                        {"head", {"norm"}}},
                       1) ==
        StageParts{{.name = "embed.weight", .computes = false},
                   {.name = "norm", .computes = false},
                   {.name = "embed", .owns = false, .also_reads = {PartId{0, 0}}},
                   {.name = "0", .block = true},
                   {.name = "mtp.0",
                    .block = true,
                    .also_reads = {PartId{0, 0}, PartId{0, 1}},
                    .auxiliary = true},
                   {.name = "head", .owns = false, .also_reads = {PartId{0, 1}}}});
}

TEST_CASE("model parts: a block that is declared each time that it computes") {
  auto parameters = parameters_of({{"layers.0.mlp"}, {"layers.1.mlp"}, {"layers.10.mlp"}});
  const PartId first{0, 1}, second{0, 0};
  CHECK(declared_parts(parameters, 0,
                       {{"layers.10"}, {"layers.1"}, {"layers.0"}, {"layers.1"}, {"layers.0"}},
                       1) == StageParts{{.name = "layers.1.mlp", .computes = false},
                                        {.name = "layers.0.mlp", .computes = false},
                                        {.name = "10", .block = true},
                                        {"1", true, true, false, false, {second}},
                                        {"0", true, true, false, false, {first}},
                                        {"1", true, true, false, false, {second}},
                                        {"0", true, true, false, false, {first}}});
}

TEST_CASE("model parts: a declared part reads parameters of another stage of the rank") {
  auto both = parameters_of({{"embed.weight", 0, kTable}, {"layers.0.mlp"}, {"norm", 3}});
  CHECK(declared_parts(both, 3, {{"head", {"norm", "embed"}}}, 1) ==
        StageParts{{.name = "head", .also_reads = {PartId{0, 0}}}});
  CHECK(parts_of(both) == std::vector<PartId>{{0, 0}, {0, 1}, {3, 0}});
}

TEST_CASE("model parts: a declared part or path without parameters is an error of the plugin") {
  auto parameters = parameters_of({{"layers.0.mlp"}});
  for (const auto& [declared, text] : std::vector<std::pair<ComputedPart, const char*>>{
           {{"layers.1"}, "a part 'layers.1', but there are no parameters below"},
           {{"layers"}, ""},
           {{"layer"}, "a part 'layer', but"},
           {{"layers.0", {"layers.0.ml"}}, "part 'layers.0' reads 'layers.0.ml', but"}}) {
    std::string message;
    try {
      declared_parts(parameters, 0, {declared}, 1);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::plugin);
      CHECK(error.hint().find("Model::parts()") != std::string::npos);
      message = error.message();
    }
    CHECK(message.empty() == std::string(text).empty());
    CHECK_MESSAGE(message.find(text) != std::string::npos, message);
  }
}

}  // namespace
}  // namespace mtrain
