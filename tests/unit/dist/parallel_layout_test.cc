#include "mtrain/dist/parallel_layout.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

std::string texts(const RankGrid& grid) {
  ParallelLayout layout = parallel_layout(grid);
  return layout.dense.to_text() + " | " + layout.expert.to_text();
}

std::string grid_refusal(const RankGrid& grid) {
  try {
    return texts(grid);
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::config);
    return e.message();
  }
}

TEST_CASE("dist.order: the first axis is the innermost, in both meshes") {
  CHECK(texts({.world_size = 16, .tp = 2, .pp = 2, .cp = 2, .ep = 4}) ==
        "pp 2 x dp 2 x cp 2 x tp 2 | pp 2 x edp 2 x ep 4 x etp 1");
  CHECK(texts({.world_size = 16,
               .tp = 2,
               .pp = 2,
               .cp = 2,
               .ep = 2,
               .etp = 2,
               .order = "tp-cp-ep-pp-dp"}) ==
        "dp 2 x pp 2 x cp 2 x tp 2 | edp 2 x pp 2 x ep 2 x etp 2");
  CHECK(texts({.world_size = 8, .tp = 2, .pp = 2, .etp = 2, .order = "PP-TP-DP"}) ==
        "cp 1 x dp 2 x tp 2 x pp 2 | ep 1 x edp 2 x etp 2 x pp 2");
  CHECK(texts({}) == "pp 1 x dp 1 x cp 1 x tp 1 | pp 1 x edp 1 x ep 1 x etp 1");
}

TEST_CASE("dist.order and sizes that make no mesh are refused") {
  CHECK(grid_refusal({.world_size = 10, .tp = 4}) ==
        "10 ranks cannot be divided into groups of tp 4 x cp 1 x pp 1 = 4");
  CHECK(grid_refusal({.world_size = 8, .pp = 2, .ep = 8}) ==
        "8 ranks cannot be divided into groups of etp 1 x ep 8 x pp 2 = 16");
  CHECK(grid_refusal({.world_size = 8, .order = "tp-xp-dp"}) ==
        "dist.order 'tp-xp-dp' names 'xp', which is not an axis");
  CHECK(grid_refusal({.world_size = 8, .order = "tp-dp-tp"}) ==
        "dist.order 'tp-dp-tp' names 'tp' twice");
  CHECK(grid_refusal({.world_size = 8, .order = "tp-cp-ep-pp"}) ==
        "dist.order 'tp-cp-ep-pp' leaves out 'dp', but dp is 8");
  CHECK(grid_refusal({.world_size = 8, .ep = 2, .order = "tp-cp-dp-pp"}) ==
        "dist.order 'tp-cp-dp-pp' leaves out 'ep', but ep is 2");
  CHECK(grid_refusal({.world_size = 0}) ==
        "0 ranks cannot be divided into groups of tp 1 x cp 1 x pp 1 = 1");
  CHECK(grid_refusal({.world_size = 8, .tp = -1}) == "mesh axis 'tp' has size -1");
}

TEST_CASE("dist.order: a pipeline inside data parallelism needs edp = dp, as in Megatron") {
  RankGrid grid{.world_size = 16, .tp = 2, .pp = 2, .ep = 4, .order = "tp-cp-ep-pp-dp"};
  CHECK(grid_refusal(grid) ==
        "axis 'pp' would not group the same ranks in both views: 2 ranks 2 apart in dp 4 x pp 2 x "
        "cp 1 x tp "
        "2, 2 ranks "
        "4 apart in edp 2 x pp 2 x ep 4 x etp 1");
  grid.ep = 2;  // edp = dp
  CHECK(grid_refusal(grid) == "dp 4 x pp 2 x cp 1 x tp 2 | edp 4 x pp 2 x ep 2 x etp 1");
}

}  // namespace
}  // namespace mtrain
