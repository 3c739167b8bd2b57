#include "mtrain/dist/mesh_layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/dist/parallel_layout.h"
#include "roots.h"

namespace mtrain {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

const MeshLayout kMesh({{"pp", 3}, {"dp", 4}, {"cp", 2}, {"tp", 5}});

// What `call` refuses with: "message; hint".
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::config);
    return e.hint().empty() ? e.message() : e.message() + "; " + e.hint();
  }
  return "accepted";
}

TEST_CASE("mesh: ranks count through the axes, the last one fastest") {
  CHECK(kMesh.num_ranks() == 120);
  CHECK(kMesh.to_text() == "pp 3 x dp 4 x cp 2 x tp 5");
  CHECK(kMesh.coordinates(0) == std::vector<int64_t>{0, 0, 0, 0});
  CHECK(kMesh.coordinates(5) == std::vector<int64_t>{0, 0, 1, 0});
  CHECK(kMesh.coordinates(119) == std::vector<int64_t>{2, 3, 1, 4});
  CHECK(kMesh.stride("dp") == 10);
  CHECK(kMesh.coordinate(57, "dp") == 1);
  for (int64_t rank = 0; rank < kMesh.num_ranks(); ++rank)
    CHECK(kMesh.rank_at(kMesh.coordinates(rank)) == rank);
}

TEST_CASE("mesh: the published example, 16 ranks with tp 2 and pp 4") {
  MeshLayout mesh = parallel_layout({.world_size = 16, .tp = 2, .pp = 4}).dense;
  CHECK(mesh.groups("dp") ==
        Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  CHECK(mesh.groups("tp") ==
        Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(mesh.groups("pp") == Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  CHECK(mesh.group("pp", 9) == RankGroup{{1, 5, 9, 13}, 2});
}

void compare(const MeshLayout& mesh, const nlohmann::json& tables, int& compared) {
  for (const auto& [token, groups] : tables.items()) {
    INFO(mesh.to_text(), " ", token);
    AxisNames axes(split(token, '-'));
    CHECK(mesh.groups(axes) == groups.get<Groups>());
    ++compared;
  }
}

TEST_CASE(
    "mesh: group tables made by handing out ranks one by one") {  // tests/golden/mesh_groups_generate.py
  std::ifstream file(testing::source_root() / "tests/golden/mesh_groups/golden.json");
  REQUIRE(file.good());
  int compared = 0;
  for (const auto& c : nlohmann::json::parse(file)) {
    ParallelLayout layout = parallel_layout({.world_size = c["world"],
                                             .tp = c["tp"],
                                             .pp = c["pp"],
                                             .cp = c["cp"],
                                             .ep = c["ep"],
                                             .etp = c["etp"],
                                             .order = c["order"]});
    compare(layout.dense, c["dense"], compared);
    compare(layout.expert, c["expert"], compared);
  }
  CHECK(compared == 14 * 18);
}

// Every subset of the axes of a mesh.
std::vector<AxisNames> subsets(const MeshLayout& mesh) {
  std::vector<AxisNames> out;
  for (size_t mask = 0; mask < size_t{1} << mesh.axes().size(); ++mask) {
    std::vector<std::string> names;
    for (size_t i = 0; i < mesh.axes().size(); ++i)
      if (mask >> i & 1) names.push_back(mesh.axes()[i].name);
    out.emplace_back(names);
  }
  return out;
}

TEST_CASE("mesh: the groups of any axes part the ranks, and every way to ask for one agrees") {
  for (const AxisNames& axes : subsets(kMesh)) {
    INFO(join(axes.names(), "-"));
    Groups groups = kMesh.groups(axes);
    CHECK(static_cast<int64_t>(groups.size()) == kMesh.num_groups(axes));
    std::set<int64_t> seen;
    for (size_t g = 0; g < groups.size(); ++g) {
      CHECK(static_cast<int64_t>(groups[g].size()) == kMesh.size(axes));
      CHECK(std::is_sorted(groups[g].begin(), groups[g].end()));
      CHECK((g == 0 || groups[g - 1][0] < groups[g][0]));
      CHECK(kMesh.group_ranks(axes, static_cast<int64_t>(g)) == groups[g]);
      for (size_t i = 0; i < groups[g].size(); ++i) {
        int64_t rank = groups[g][i];
        CHECK(seen.insert(rank).second);
        CHECK(kMesh.group(axes, rank) == RankGroup{groups[g], static_cast<int64_t>(i)});
        CHECK(kMesh.group_number(axes, rank) == static_cast<int64_t>(g));
        CHECK(kMesh.index_in_group(axes, rank) == static_cast<int64_t>(i));
      }
    }
    CHECK(static_cast<int64_t>(seen.size()) == kMesh.num_ranks());
  }
}

TEST_CASE("mesh: a group is the ranks that differ along its axes only") {
  for (const AxisNames& axes : subsets(kMesh))
    for (int64_t a : {0, 7, 63, 119})
      for (int64_t b = 0; b < kMesh.num_ranks(); ++b) {
        bool agree = true;
        for (const AxisSpec& axis : kMesh.axes()) {
          bool inside = std::count(axes.names().begin(), axes.names().end(), axis.name) > 0;
          if (!inside)
            agree = agree && kMesh.coordinate(a, axis.name) == kMesh.coordinate(b, axis.name);
        }
        CHECK((kMesh.group_number(axes, a) == kMesh.group_number(axes, b)) == agree);
      }
}

TEST_CASE(
    "mesh: a joint group is the union of the groups along one axis through those of the other") {
  CHECK(kMesh.groups({"dp", "cp"}) == kMesh.groups({"cp", "dp"}));
  for (int64_t rank = 0; rank < kMesh.num_ranks(); ++rank) {
    std::set<int64_t> through;
    for (int64_t other : kMesh.group("dp", rank).ranks)
      for (int64_t last : kMesh.group("cp", other).ranks) through.insert(last);
    std::vector<int64_t> joint = kMesh.group({"dp", "cp"}, rank).ranks;
    CHECK(std::vector<int64_t>(through.begin(), through.end()) == joint);
  }
  CHECK(kMesh.group({}, 17) == RankGroup{{17}, 0});
  CHECK(kMesh.num_groups({"pp", "dp", "cp", "tp"}) == 1);
}

TEST_CASE("mesh: what is no mesh, and axes that are not there") {
  CHECK(refusal([] { kMesh.group("ep", 0); }) ==
        "the mesh has no axis 'ep'; its axes: pp, dp, cp, tp");
  CHECK(refusal([] { kMesh.stride("TP"); }) ==
        "the mesh has no axis 'TP'; its axes: pp, dp, cp, tp");
  CHECK(refusal([] { kMesh.size({"tp", "tp"}); }) == "joint axis names 'tp' twice");
  CHECK(refusal([] { MeshLayout({{"", 2}}); }) == "axis 0 of the mesh has no name");
  CHECK(refusal([] {
          MeshLayout({{"tp", 2}, {"dp", 1}, {"tp", 2}});
        }) == "the mesh has two axes 'tp'; give each axis a different name");
  CHECK(refusal([] {
          MeshLayout({{"tp", 0}});
        }) == "mesh axis 'tp' has size 0; an axis is at least 1 rank long");
  CHECK(refusal([] {
          MeshLayout({{"dp", 1 << 30}, {"tp", 2}});
        }) == "mesh axis 'dp' of size 1073741824 makes more than 2147483647 ranks");
  CHECK_THROWS_AS(kMesh.coordinates(120), Error);
  CHECK_THROWS_AS(kMesh.group("tp", -1), Error);
  CHECK_THROWS_AS(kMesh.group_ranks("tp", 24), Error);
  CHECK(MeshLayout({}).num_ranks() == 1);
}

TEST_CASE("mesh: an axis split in two is the same axis when joined") {
  MeshLayout hybrid = kMesh.split("dp", {{"replica", 2}, {"shard", 2}});
  CHECK(hybrid.to_text() == "pp 3 x replica 2 x shard 2 x cp 2 x tp 5");
  CHECK(hybrid.groups({"replica", "shard"}) == kMesh.groups("dp"));
  CHECK(hybrid.groups({"replica", "tp", "shard"}) == kMesh.groups({"dp", "tp"}));
  CHECK(hybrid.groups("tp") == kMesh.groups("tp"));
  CHECK(hybrid.group("replica", 0).ranks == std::vector<int64_t>{0, 20});
  CHECK(refusal([] {
          kMesh.split("dp", {{"replica", 3}, {"shard", 2}});
        }) ==
        "axis 'dp' of size 4 cannot be divided into replica 3 x shard 2 = 6; the product of the "
        "sizes must be 4");
  CHECK(refusal([] {
          kMesh.split("dp", {{"tp", 2}, {"shard", 2}});
        }) == "the mesh has two axes 'tp'; give each axis a different name");
}

TEST_CASE("mesh: views group the ranks of a shared axis alike, or are refused") {
  MeshLayout dense({{"pp", 2}, {"dp", 4}, {"tp", 2}});
  MeshLayout expert = dense.view({{"pp", 2}, {"edp", 2}, {"ep", 4}});
  CHECK(expert.groups("pp") == dense.groups("pp"));
  CHECK(expert.groups({"edp", "ep"}) == dense.groups({"dp", "tp"}));
  CHECK(refusal([&] {
          dense.view({{"pp", 2}, {"ep", 4}});
        }) ==
        "the view pp 2 x ep 4 has 8 ranks, but the mesh pp 2 x dp 4 x tp 2 has 16; choose axes "
        "whose sizes have the product 16");
  CHECK(refusal([&] {
          dense.view({{"edp", 2}, {"pp", 2}, {"ep", 4}});
        }) ==
        "axis 'pp' would not group the same ranks in both views: 2 ranks 8 apart in pp 2 x dp 4 x "
        "tp 2, 2 "
        "ranks 4 "
        "apart in edp 2 x pp 2 x ep 4; make 'pp' the outermost axis, or the axes inside it equally "
        "large in "
        "both");
  // Alone along an axis of size 1, whatever its place.
  CHECK(MeshLayout({{"a", 4}, {"pp", 1}, {"b", 2}}).view({{"pp", 1}, {"c", 8}}).num_ranks() == 8);
}

TEST_CASE(
    "mesh: 16,384 ranks cost a group's size per question, and all groups of an axis one entry per "
    "rank") {
  ParallelLayout layout =
      parallel_layout({.world_size = 16384, .tp = 8, .pp = 16, .cp = 4, .ep = 64});
  CHECK(layout.dense.to_text() == "pp 16 x dp 32 x cp 4 x tp 8");
  CHECK(layout.expert.to_text() == "pp 16 x edp 16 x ep 64 x etp 1");
  size_t own = 0, all = 0, axes = 0;
  for (const MeshLayout* mesh : {&layout.dense, &layout.expert})
    for (const AxisSpec& axis : mesh->axes()) {
      ++axes;
      for (const auto& group : mesh->groups(axis.name)) all += group.size();
      for (int64_t rank = 0; rank < mesh->num_ranks(); ++rank) {
        RankGroup group = mesh->group(axis.name, rank);
        own += group.ranks.size();
        if (group.ranks[static_cast<size_t>(group.index)] != rank) FAIL(axis.name, " ", rank);
      }
    }
  CHECK(axes == 8);
  CHECK(all == axes * 16384);
  CHECK(own == 16384 * (16 + 32 + 4 + 8 + 16 + 16 + 64 + 1));
}

}  // namespace
}  // namespace mtrain
