#include "mtrain/dist/mesh_picture.h"

#include <doctest/doctest.h>

#include <map>

#include "mtrain/base/error.h"
#include "mtrain/dist/parallel_layout.h"

namespace mtrain {
namespace {

std::vector<MeshLayout> views(const RankGrid& grid) {
  ParallelLayout layout = parallel_layout(grid);
  return {layout.dense, layout.expert};
}

const RankGrid kGrid{.world_size = 16, .tp = 2, .pp = 2, .ep = 4};

TEST_CASE("picture: the tables of 16 ranks with experts") {
  CHECK(mesh_text(views(kGrid), {.ranks_per_node = 4, .max_ranks = 6}) ==
        R"(16 ranks on 4 nodes of 4: pp 2 x dp 4 x cp 1 x tp 2 = pp 2 x edp 2 x ep 4 x etp 1
not split: cp, etp

axis  size  groups  nodes  group of rank 0  splits
pp       2       8      2  0 8              the blocks of the model
dp       4       4      2  0 2 4 6          the samples of a batch
tp       2       8      1  0 1              each weight
edp      2       8      2  0 4              the tokens of each expert
ep       4       4      1  0 1 2 3          the experts

rank  node  pp  dp  tp  edp  ep
0        0   0   0   0    0   0
1        0   0   0   1    0   1
2        0   0   1   0    0   2
3        0   0   1   1    0   3
4        1   0   2   0    1   0
5        1   0   2   1    1   1
and 10 more ranks
)");
}

TEST_CASE("picture: a mesh that splits nothing, and long groups") {
  MeshLayout one[] = {MeshLayout({{"dp", 1}, {"tp", 1}})};
  CHECK(mesh_text(one) == "1 rank on 1 node of 8: dp 1 x tp 1\nnot split: dp, tp\n");
  MeshLayout wide[] = {MeshLayout({{"rows", 9}, {"columns", 8}})};
  std::string text = mesh_text(wide, {.max_ranks = 0});
  CHECK(text.find("rows        9       8      9  0 8 16 24 32 40 48 .. 64\n") != std::string::npos);
  CHECK(text.find("columns     8       9      1  0 1 2 3 4 5 6 7\n") != std::string::npos);
  CHECK_THROWS_AS(mesh_text({}), Error);
}

// What stands between two marks, from `at` on; `at` moves past the second. Empty when they are not
// there.
std::string between(const std::string& text, std::string_view open, std::string_view close,
                    size_t& at) {
  size_t from = text.find(open, at);
  size_t to = from == std::string::npos ? from : text.find(close, from + open.size());
  if (to == std::string::npos) return "";
  at = to + close.size();
  return text.substr(from + open.size(), to - from - open.size());
}

// Of each panel, the colour of each rank, read back from the drawing.
std::map<std::string, std::map<int64_t, std::string>> colours(const std::string& svg) {
  std::map<std::string, std::map<int64_t, std::string>> out;
  for (size_t at = 0;;) {
    std::string rank = between(svg, "<title>rank ", ",", at), axis = between(svg, " of ", ":", at);
    std::string colour = between(svg, " fill=\"", "\"", at);
    if (rank.empty() || axis.empty() || colour.empty()) return out;
    out[axis][std::stoll(rank)] = colour;
  }
}

TEST_CASE("picture: in each panel two ranks have the same colour when they share the group") {
  std::vector<MeshLayout> meshes =
      views({.world_size = 96, .tp = 4, .pp = 3, .cp = 2, .ep = 8, .etp = 2});
  auto drawn = colours(mesh_svg(meshes, {.max_ranks = 96}));
  size_t panels = 0;
  for (const MeshLayout& mesh : meshes)
    for (const AxisSpec& axis : mesh.axes()) {
      if (axis.size == 1) continue;
      INFO(axis.name);
      ++panels;
      REQUIRE(drawn[axis.name].size() == 96);
      for (int64_t a = 0; a < 96; ++a)
        for (int64_t b = 0; b < 96; ++b)
          CHECK((drawn[axis.name][a] == drawn[axis.name][b]) ==
                (mesh.group_number(axis.name, a) == mesh.group_number(axis.name, b)));
    }
  CHECK(panels == 8);
  CHECK(drawn.size() == 7);  // pp is drawn once
}

TEST_CASE("picture: every element of the drawing is closed, and text is escaped") {
  MeshLayout odd[] = {MeshLayout({{"a<b&c", 2}, {"x", 2}})};
  std::string svg = mesh_svg(odd, {.ranks_per_node = 2, .max_ranks = 3});
  std::vector<std::string> open;
  size_t tags = 0;
  for (size_t at = 0;; ++tags) {
    std::string tag = between(svg, "<", ">", at);
    if (tag.empty()) break;
    CHECK(tag.find('<') == std::string::npos);
    if (tag[0] == '/') {
      REQUIRE(!open.empty());
      CHECK(open.back() == tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  CHECK(tags > 60);  // two panels of three ranks, each a group, a title, a cell and two texts
  CHECK(open.empty());
  CHECK(svg.find("a&lt;b&amp;c: 2 groups of 2") != std::string::npos);
  CHECK(svg.find("a<b") == std::string::npos);
  CHECK(svg.find("and 1 more rank<") != std::string::npos);
}

}  // namespace
}  // namespace mtrain
