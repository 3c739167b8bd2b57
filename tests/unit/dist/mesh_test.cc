#include "mtrain/dist/mesh.h"

#include <doctest/doctest.h>

#include <mutex>

#include "mtrain/comm/thread_world.h"

namespace mtrain {
namespace {

const MeshLayout kLayout({{"pp", 2}, {"dp", 2}, {"cp", 1}, {"tp", 2}});

// What an axis says of itself, and the sum of the world ranks along it, which only its group can
// give.
std::string description(const Axis& axis, int rank) {
  return cat(axis.name(), " ", axis.index(), "/", axis.size(), " sum ",
             axis.comm().all_reduce_value<int64_t>(rank));
}

std::string expected(const MeshLayout& layout, const AxisNames& axes, const std::string& name,
                     int rank) {
  RankGroup group = layout.group(axes, rank);
  int64_t sum = 0;
  for (int64_t other : group.ranks) sum += other;
  return cat(name, " ", group.index, "/", group.ranks.size(), " sum ", sum);
}

using Lines = std::vector<std::string>;

TEST_CASE("mesh: every axis, joint axis and view talks to the ranks of its group") {
  std::vector<Lines> got(8), want(8);
  run_ranks(8, [&](Communicator& world) {
    int rank = world.rank();
    Mesh mesh(world, kLayout);
    Lines& out = got[static_cast<size_t>(rank)];
    for (const char* name : {"pp", "dp", "cp", "tp"}) out.push_back(description(mesh[name], rank));
    const Axis& joint = mesh.joint({"cp", "dp"});
    out.push_back(description(joint, rank));
    out.push_back(description(mesh.joint({"tp", "pp"}), rank));
    out.push_back(description(mesh.joint({"dp", "cp"}), rank));
    out.push_back(cat(&mesh.joint({"dp", "cp"}) == &joint, " ", &mesh.joint("tp") == &mesh["tp"]));
    Mesh expert = mesh.view({{"pp", 2}, {"edp", 1}, {"ep", 4}});
    for (const char* name : {"pp", "edp", "ep"}) out.push_back(description(expert[name], rank));
  });
  MeshLayout expert = kLayout.view({{"pp", 2}, {"edp", 1}, {"ep", 4}});
  for (int rank = 0; rank < 8; ++rank) {
    Lines& out = want[static_cast<size_t>(rank)];
    for (const char* name : {"pp", "dp", "cp", "tp"})
      out.push_back(expected(kLayout, name, name, rank));
    out.push_back(expected(kLayout, {"dp", "cp"}, "dp-cp", rank));
    out.push_back(expected(kLayout, {"pp", "tp"}, "pp-tp", rank));
    out.push_back(expected(kLayout, {"dp", "cp"}, "dp-cp", rank));
    out.push_back("1 1");
    for (const char* name : {"pp", "edp", "ep"}) out.push_back(expected(expert, name, name, rank));
    INFO("rank ", rank);
    CHECK(join(got[static_cast<size_t>(rank)], "\n") == join(out, "\n"));
  }
}

TEST_CASE("mesh: world ranks of an axis' communicator are those of the layout") {
  std::mutex mutex;
  run_ranks(8, [&](Communicator& world) {
    Mesh mesh(world, kLayout);
    for (const char* name : {"pp", "dp", "tp"}) {
      std::span<const int> ranks = mesh[name].comm().world_ranks();
      std::lock_guard lock(mutex);
      CHECK(std::vector<int64_t>(ranks.begin(), ranks.end()) ==
            kLayout.group(name, world.rank()).ranks);
    }
  });
}

TEST_CASE("mesh: one rank needs no other, and what does not fit is refused") {
  auto self = make_self_communicator();
  Mesh one(*self, MeshLayout({{"dp", 1}, {"tp", 1}}));
  CHECK(one["tp"].size() == 1);
  CHECK(one.joint({"tp", "dp"}).name() == "dp-tp");
  CHECK_THROWS_WITH_AS(one["ep"], doctest::Contains("the mesh has no axis 'ep'"), Error);
  CHECK_THROWS_WITH_AS(one.joint({"tp", "cp"}), doctest::Contains("the mesh has no axis 'cp'"),
                       Error);
  CHECK_THROWS_WITH_AS(
      Mesh(*self, kLayout),
      doctest::Contains(
          "the mesh pp 2 x dp 2 x cp 1 x tp 2 is made for 8 ranks, but the job has 1"),
      Error);
}

}  // namespace
}  // namespace mtrain
