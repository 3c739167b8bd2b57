// Which rows of a parameter a tensor holds: fused projections, experts, stacked and interleaved
// matrices, and settings that decide which tensors there are.
#include "mtrain/recipe/hf_tensors.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;

namespace {

using Part = HfTensorRule::Part;

/// For each row of a parameter, the row of the tensor that holds it.
std::vector<int64_t> places(const HfPlacement& place, size_t parameter, int64_t rows) {
  std::vector<int64_t> out(static_cast<size_t>(rows), -1);
  for (const HfRows& run : place.rows)
    for (int64_t r = 0; run.parameter == parameter && r < run.rows; ++r) {
      auto& at = out[static_cast<size_t>(run.parameter_row + r)];
      CHECK(at == -1);
      at = run.tensor_row + r * run.tensor_step;
    }
  return out;
}

HfPlacement placed(const HfTensorRule& rule, const HeadLayout& heads,
                   const std::vector<Shape>& shapes, int64_t piece = 0, int64_t pieces = 1) {
  HfTensor tensor{.name = "t", .parameters = {}, .rule = &rule, .piece = piece, .pieces = pieces};
  for (size_t i = 0; i < shapes.size(); ++i) tensor.parameters.push_back(cat("p", i));
  return hf_placement(tensor, heads, shapes);
}

using Rows = std::vector<int64_t>;

Schema schema() {
  auto field = [](const char* path, Fact fact, const char* value) {
    FieldSpec spec;
    spec.path = path;
    spec.type = FieldType::integer;
    spec.default_value = value;
    spec.fact = fact;
    return spec;
  };
  return {.name = "tiny",
          .doc = "",
          .fields = {field("layers", Fact::layers, "3"),
                     field("hidden_size", Fact::hidden_size, "8"), field("heads", Fact::heads, "4"),
                     field("kv_heads", Fact::kv_heads, "0"), field("experts", Fact::experts, "2"),
                     field("first", Fact::none, "1"), field("every", Fact::none, "2")},
          .needs = ""};
}

}  // namespace

TEST_CASE("queries, keys and values of a fused projection, in tensors of their own and in one") {
  // 4 heads of width 2 on 2 groups: each group is its two query heads, its key, its value.
  const HeadLayout heads{4, 2, 2};
  auto of = [&](Part part) {
    const HfPlacement place = placed({.part = part}, heads, {Shape{16, 3}});
    return std::pair{places(place, 0, 16), place.shape};
  };
  CHECK(of(Part::queries).first == Rows{0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1});
  CHECK(of(Part::queries).second == Shape{8, 3});
  CHECK(of(Part::keys).first == Rows{-1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, 2, 3, -1, -1});
  CHECK(of(Part::values).first == Rows{-1, -1, -1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, 2, 3});
  CHECK(of(Part::values).second == Shape{4, 3});
  const HfPlacement one = placed({.part = Part::all, .transpose = true}, {2, 2, 2}, {Shape{12, 5}});
  CHECK(places(one, 0, 12) == Rows{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11});
  CHECK(one.shape == Shape{5, 12});
  CHECK(one.element(4, 2) == 2 * 12 + 4);
  const HfPlacement bias = placed({.part = Part::all, .transpose = true}, {4, 1, 1}, {Shape{6}});
  CHECK(bias.shape == Shape{6});
  CHECK(places(bias, 0, 6) == Rows{0, 1, 2, 3, 4, 5});
}

TEST_CASE("experts, one after the other, interleaved, and stacked") {
  const Shape stack{2, 3, 4};  // 2 experts of 3 rows
  const HfPlacement second = placed({}, {}, {stack}, 1, 2);
  CHECK(second.shape == Shape{3, 4});
  CHECK(places(second, 0, 6) == Rows{-1, -1, -1, 0, 1, 2});
  const HfPlacement joined = placed({}, {}, {Shape{2, 5}, Shape{3, 5}});
  CHECK(joined.shape == Shape{5, 5});
  CHECK(places(joined, 1, 3) == Rows{2, 3, 4});
  const HfPlacement mixed = placed({.interleave = true}, {}, {Shape{3, 5}, Shape{3, 5}});
  CHECK(places(mixed, 0, 3) == Rows{0, 2, 4});
  CHECK(places(mixed, 1, 3) == Rows{1, 3, 5});
  const HfPlacement all =
      placed({.transpose = true, .interleave = true, .stacked = true}, {}, {stack, stack});
  CHECK(all.shape == Shape{2, 4, 6});
  CHECK(places(all, 1, 6) == Rows{1, 3, 5, 7, 9, 11});
  CHECK(all.element(7, 2) == (1 * 4 + 2) * 6 + 1);  // expert 1, column 2, row 1
  const HfPlacement flat = placed({.transpose = true, .stacked = true, .flat = true}, {}, {stack});
  CHECK(flat.shape == Shape{8, 3});
  CHECK(flat.element(4, 2) == (4 + 2) * 3 + 1);  // expert 1, column 2, row 1
  CHECK_THROWS_AS(placed({}, {}, {Shape{2, 5}, Shape{2, 6}}), Error);
}

TEST_CASE(
    "a vector is one row of a parameter: that of a head, of several in turn, or its only one") {
  const HfPlacement second = placed({.vector = true}, {}, {Shape{3, 5}}, 1, 3);
  CHECK(second.shape == Shape{5});
  CHECK(places(second, 0, 3) == Rows{-1, 0, -1});
  CHECK(second.element(0, 4) == 4);
  const HfPlacement only = placed({.vector = true}, {}, {Shape{1, 7}});
  CHECK(only.shape == Shape{7});
  CHECK(places(only, 0, 1) == Rows{0});
  CHECK(placed({}, {}, {Shape{3, 5}}, 1, 3).shape == Shape{1, 5});  // a matrix without the word
  CHECK_THROWS_WITH_AS(placed({.vector = true}, {}, {Shape{3, 5}}),
                       doctest::Contains("t is a vector, and p0 has 3 rows for it"), Error);
}

TEST_CASE("groups of heads, each with its queries, values and keys, and a matrix of one row") {
  // 4 heads of width 1: each is its query, its key, its value.
  const HfTensorRule rule{.part = Part::all, .keys_last = true, .groups = 2};
  const HfPlacement place = placed(rule, {4, 4, 1}, {Shape{12, 3}});
  CHECK(place.shape == Shape{12, 3});
  CHECK(places(place, 0, 12) == Rows{0, 4, 2, 1, 5, 3, 6, 10, 8, 7, 11, 9});
  // 4 heads on 2 groups of keys and values: each group is two queries, its key, its value.
  CHECK(places(placed(rule, {4, 2, 1}, {Shape{8, 3}}), 0, 8) == Rows{0, 1, 3, 2, 4, 5, 7, 6});
  CHECK_THROWS_WITH_AS(placed(rule, {3, 3, 1}, {Shape{9, 3}}),
                       doctest::Contains("2 groups of heads, which do not divide 3"), Error);
  const HfPlacement row = placed({.matrix = true}, {}, {Shape{5}});
  CHECK(row.shape == Shape{1, 5});
  CHECK(places(row, 0, 5) == Rows{0, 1, 2, 3, 4});
}

TEST_CASE("heads of latent attention have no common width, whatever the width of the model") {
  Schema plugin = schema();
  FieldSpec rank;
  rank.path = "mla.kv_lora_rank";
  rank.type = FieldType::integer;
  rank.default_value = "0";
  plugin.fields.push_back(rank);
  const Node plain = parse_yaml("{hidden_size: 10}"),
             latent = parse_yaml("{hidden_size: 10, mla: {kv_lora_rank: 4}}");
  CHECK_THROWS_AS(HfModel(plain, plugin).heads(), Error);
  CHECK_NOTHROW(HfModel(latent, plugin).heads());
}

TEST_CASE("settings decide which tensors a model has") {
  HfFamily family;
  family.model_type = "tiny";
  family.indices = {{"e", "experts"}};
  family.blocks = {{"sparse", "first", "every"}};
  family.tensors = {
      {.tensor = "model.embed", .parameters = {"embed"}},
      {.tensor = "model.{i}.w",
       .parameters = {"b.{i}.w"},
       .blocks = "sparse",
       .not_in_blocks = true},
      {.tensor = "model.{i}.x.{e}", .parameters = {"b.{i}.x"}, .blocks = "sparse"},
      {.tensor = "head", .parameters = {"head"}, .when = {{"tied", Node::boolean(false)}}}};
  family.copies = {{"head", "model.embed", {{"tied", Node::boolean(true)}}}};
  family.unused = {{"model.{i}.mask", "a mask"}, {"mtp.*", "further tokens"}};
  const Schema plugin = schema();
  auto names = [&](const std::string& settings) {
    const Node section = parse_yaml(settings);
    std::vector<std::string> out;
    for (const HfTensor& tensor : hf_tensors(family, HfModel(section, plugin)))
      out.push_back(tensor.name);
    return join(out, " ");
  };
  // Blocks with experts: every second one after the first.
  CHECK(names("tied: false") == "model.embed model.0.w model.1.w model.2.x.0 model.2.x.1 head");
  CHECK(names("{tied: true, layers: 1, first: 0, every: 1}") ==
        "model.embed model.0.x.0 model.0.x.1");
  const Node tied = parse_yaml("tied: true");
  CHECK(hf_copies(family, HfModel(tied, plugin)).size() == 1);
  CHECK(HfModel(tied, plugin).heads().head_dim == 2);
  CHECK(hf_unused(family, "model.12.mask"));
  CHECK(hf_unused(family, "12.mask"));
  CHECK_FALSE(hf_unused(family, "model.x.mask"));
  CHECK_FALSE(hf_unused(family, "model.1.masks"));
  CHECK(hf_unused(family, "mtp.0.w.weight"));
  CHECK_FALSE(hf_unused(family, "mtp0.w"));
  CHECK_FALSE(hf_unused(family, "model.embed"));
}

TEST_CASE("blocks for further tokens have the numbers after the last block, and are like it") {
  HfFamily family;
  family.model_type = "tiny";
  family.blocks = {{"sparse", "first", "every"}};
  family.tensors = {{.tensor = "model.{i}.w", .parameters = {"layers.{i}.w"}},
                    {.tensor = "model.{i}.x", .parameters = {"layers.{i}.x"}, .blocks = "sparse"},
                    {.tensor = "model.{i}.y",
                     .parameters = {"layers.{i}.y", "layers.{i}.z"},
                     .blocks = "sparse",
                     .not_in_blocks = true},
                    {.tensor = "model.{i}.enorm", .parameters = {"mtp.{i}.enorm"}}};
  family.copies = {{.tensor = "model.{i}.embed", .of = "model.embed", .when = {}}};
  Schema sizes = schema();
  FieldSpec depths = sizes.fields[0];
  depths.path = "mtp.layers", depths.fact = Fact::mtp_layers, depths.default_value = "0";
  sizes.fields.push_back(depths);
  auto names = [&](const char* settings) {
    const Node section = parse_yaml(settings, "settings");
    const HfModel model(section, sizes);
    std::string all;
    for (const HfTensor& tensor : hf_tensors(family, model))
      all += cat(tensor.name, "=", join(tensor.parameters, "+"), " ");
    for (const auto& [copy, of] : hf_copies(family, model)) all += cat(copy, " of ", of, " ");
    return all;
  };
  CHECK(names("{layers: 2, first: 1, every: 1}") ==
        "model.0.w=layers.0.w model.1.w=layers.1.w model.1.x=layers.1.x "
        "model.0.y=layers.0.y+layers.0.z ");
  CHECK(names("{layers: 2, first: 1, every: 1, mtp: {layers: 2}}") ==
        "model.0.w=layers.0.w model.1.w=layers.1.w model.2.w=mtp.0.block.w "
        "model.3.w=mtp.1.block.w model.1.x=layers.1.x model.2.x=mtp.0.block.x "
        "model.3.x=mtp.1.block.x model.0.y=layers.0.y+layers.0.z model.2.enorm=mtp.0.enorm "
        "model.3.enorm=mtp.1.enorm model.2.embed of model.embed model.3.embed of model.embed ");
  family.tensors.pop_back();  // a family without them
  CHECK(names("{layers: 1, first: 1, every: 1, mtp: {layers: 1}}").find("mtp.") ==
        std::string::npos);
}
