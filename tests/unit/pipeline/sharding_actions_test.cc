// Gather, Release and Scatter: where the pass puts them, what they cost, and what is refused.
#include "mtrain/pipeline/sharding_actions.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/forward_only.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/picture.h"
#include "mtrain/pipeline/schedule_text.h"
#include "unit/pipeline/parsed.h"

namespace mtrain {
namespace {

TEST_CASE("sharding actions: one stage per rank is gathered once, each micro-batch is scattered") {
  Schedule plain = one_f_one_b({2, 2});
  Schedule made = with_sharding_actions(plain, {.resident_stages = 1, .reduce_scatter = true});
  CHECK(to_text(lower(made, StageMap::looping(2))) ==
        "0Gather 0F0 0SendX0 0F1 0SendX1 0RecvG0 0B0 0Scatter0 0RecvG1 0B1 0Scatter1 0Release 0R\n"
        "1Gather 1RecvX0 1F0 1RecvX1 1B0 1SendG0 1Scatter0 1F1 1B1 1SendG1 1Scatter1 1Release "
        "1R\n");
  CHECK(with_sharding_actions(plain, {}) == plain);
  CHECK(with_sharding_actions(made, {.resident_stages = 2, .reduce_scatter = true}) == made);
  CHECK(to_text(with_sharding_actions(schedule("0F0 0B0 0W0"), {.reduce_scatter = true})) ==
        "0F0 0B0 0W0 0Scatter0\n");
  Schedule late = with_sharding_actions(schedule("0F0 0B0 0W0"), {.reduce_scatter = true});
  add_reduces(late);
  CHECK(to_text(late) == "0F0 0B0 0W0 0Scatter0 0R\n");
}

TEST_CASE("sharding actions: stages come before their use and go when others come next") {
  struct Row {
    int64_t resident;
    const char* text;
  };
  for (const Row& row :
       {Row{1,
            "0Gather 0F0 0Release 1Gather 1F0 1Release 2Gather 2F0 2B0 2Release "
            "1Gather 1B0 1Release 0Gather 0B0 0Release\n"},
        Row{2,
            "0Gather 1Gather 0F0 0Release 2Gather 1F0 2F0 2B0 2Release "
            "0Gather 1B0 1Release 0B0 0Release\n"},
        Row{3, "0Gather 1Gather 2Gather 0F0 1F0 2F0 2B0 2Release 1B0 1Release 0B0 0Release\n"}}) {
    CAPTURE(row.resident);
    Schedule made = with_sharding_actions(schedule("0F0 1F0 2F0 2B0 1B0 0B0"),
                                          {.resident_stages = row.resident});
    CHECK(to_text(made) == row.text);
  }
  // Two actions that overlap need both stages, and nothing comes between them.
  CHECK(to_text(with_sharding_actions(schedule("0F0 1F0 0F1+ 1B0 1F1 1B1 0B0 0B1"),
                                      {.resident_stages = 1})) ==
        "0Gather 0F0 0Release 1Gather 1F0 0Gather 0F1+ 1B0 0Release 1F1 1B1 1Release "
        "0Gather 0B0 0B1 0Release\n");
}

TEST_CASE("sharding actions: every schedule keeps its order, runs, and holds no more than it may") {
  for (std::string_view name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "combined"})
    for (int64_t resident : {1, 2, 3}) {
      int64_t virtual_stages = name == "interleaved" || name == "combined" ? 4
                               : name == "zb_v"                            ? 2
                                                                           : 1;
      Plan plan{4 * virtual_stages, 8, virtual_stages};
      Schedule plain = make_schedule(name, plan);
      Schedule made =
          with_sharding_actions(plain, {.resident_stages = resident, .reduce_scatter = true});
      INFO(std::string(name), ", ", resident);
      CHECK(schedule(to_text(made)) == made);
      for (TransferMode transfer : {TransferMode::asynchronous, TransferMode::rendezvous}) {
        Costs costs{.stages = {}, .send = 0.1, .transfer = transfer};
        costs.all = {.activation = 0, .kept = 0, .gather = 0.5, .params = 1};
        Schedule lowered = lower(made, stage_map(name, plan), costs);
        Simulated run = simulate(lowered, plan, costs);
        CHECK(join(run.faults, "\n") == "");
        double most =
            static_cast<double>(name == "combined" ? std::max<int64_t>(2, resident) : resident);
        for (double peak : run.peak) CHECK(peak == std::min(most, double(virtual_stages)));
        for (Program& program : lowered)
          std::erase_if(program, [](const Action& a) {
            return a.what >= ActionKind::recv_forward && a.what != ActionKind::reduce;
          });
        CHECK(lowered == plain);
      }
    }
}

TEST_CASE("sharding actions: gathers take time and memory, less time where they come earlier") {
  Costs costs;
  costs.all = {.activation = 0, .kept = 0, .gather = 1, .params = 10};
  auto run = [&](int64_t resident) {
    Schedule made =
        with_sharding_actions(schedule("0F0 1F0 2F0 2B0 1B0 0B0"), {.resident_stages = resident});
    add_reduces(made);
    Simulated out = simulate(made, {3, 1, 3}, costs);
    CHECK(join(out.faults, "\n") == "");
    return out;
  };
  CHECK(run(0).makespan == 9);
  CHECK(run(1).makespan == 14);  // five gathers, each waited for
  CHECK(run(2).makespan == 10);  // only the first one
  CHECK(run(1).peak == std::vector<double>{10});
  CHECK(run(2).peak == std::vector<double>{20});
  CHECK(run(3).peak == std::vector<double>{30});
  CHECK(run(2).busy == std::vector<double>{9});
  costs.overlap_gathers = false;
  CHECK(run(2).makespan == 13);
}

/// Costs of a stage of `blocks` blocks whose gradients are reduced in each backward, each in
/// `time`.
Costs with_reductions(int16_t blocks, int64_t time, bool waits = false) {
  Costs costs;
  costs.byte = 1;
  costs.steps.stages.emplace_back();
  for (int16_t i = 0; i < blocks; ++i) {
    costs.steps.stages[0].push_back({.name = std::to_string(i), .block = true});
    costs.steps.buckets.push_back(
        {.parts = {{0, i}}, .when = ReduceWhen::every_backward, .blocking = waits, .sent = time});
  }
  return costs;
}

TEST_CASE("sharding actions: a Scatter waits for the reductions that its backward has started") {
  Costs costs = with_reductions(1, 4);
  Schedule made = with_sharding_actions(one_f_one_b({1, 2}), {.reduce_scatter = true});
  CHECK(simulate(made, {1, 2}, costs).makespan == 2 * (1 + 2 + 4));
  costs = with_reductions(2, 2);
  costs.all = {.forward = 2, .backward = 2, .weights = 2};
  CHECK(simulate(made, {1, 2}, costs).makespan == 2 * (2 + 4 + 2));  // one after the second block
  costs.steps = with_reductions(2, 2, true).steps;
  CHECK(simulate(made, {1, 2}, costs).makespan == 2 * (2 + 4 + 4));
}

TEST_CASE("sharding actions: the program of an evaluation gathers stages, too") {
  Schedule made = with_sharding_actions(forward_only(StageMap::looping(2, 2), 2),
                                        {.resident_stages = 1, .reduce_scatter = true});
  CHECK(to_text(made) ==
        "0Gather 0F0 0SendX0 0F1 0Release 0SendX1 2RecvX0 2Gather 2F0 2SendX0 2RecvX1 2F1 2Release "
        "2SendX1\n"
        "1RecvX0 1Gather 1F0 1SendX0 1RecvX1 1F1 1Release 1SendX1 3RecvX0 3Gather 3F0 3RecvX1 3F1 "
        "3Release\n");
}

TEST_CASE("sharding actions: faults are reported") {
  struct Row {
    const char *text, *fault;
    int64_t micro_batches = 1;
  };
  const Row rows[] = {
      {"0Gather 0F0 0B0 0Scatter0 0Release 0R", ""},
      {"0Gather 0F0 0Release 0B0 0R", "rank 0 runs 0B0 without gathered parameters of stage 0"},
      {"0Gather 0F0 0B0 0R", "rank 0 never releases the parameters of stage 0"},
      {"0Gather 0Gather 0F0 0B0 0Release 0R",
       "rank 0 gathers parameters that are already gathered: 0Gather"},
      {"0Gather 0F0 0B0 0Release 0Release 0R",
       "rank 0 releases parameters that are not gathered: 0Release"},
      {"3Gather 0Gather 0F0 0B0 0Release 0R",
       "rank 0 has a stage or micro-batch that does not exist: 3Gather"},
      {"0F0 0B0 0Scatter0 0Scatter0 0R", "rank 0 repeats an action: 0Scatter0"},
      {"0F0 0Scatter0 0B0 0R",
       "rank 0 waits forever at 0Scatter0 for 0B0, which comes later in its program"},
      {"0F0 0B0 0Scatter0 0F1 0B1 0R 0Scatter1",
       "rank 0 waits forever at 0R for 0Scatter1, which comes later in its program", 2},
      {"0F0 0B0 0Scatter0 0F1 0B1 0R",
       "stage 0 never runs the reduce-scatter of 1\nrank 0 waits forever at 0R for 0Scatter1, "
       "which no rank runs",
       2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    Simulated run = simulate(schedule(row.text), {1, row.micro_batches});
    CHECK(join(run.faults, "\n") == row.fault);
  }
}

TEST_CASE("sharding actions: pictures show them where nothing is computed") {
  Costs costs = with_reductions(1, 2);
  costs.all.gather = 1;
  Simulated run = simulate(schedule("0Gather 0F0 0B0 0Scatter0 0Release 0R"), {1, 1}, costs);
  CHECK(draw_text(run, 12) == "rank 0 |==F0B0  ====|\n");
  std::string svg = draw_svg(run, 800, costs.steps);
  CHECK(svg.find("<title>0Gather, ") != std::string::npos);
  CHECK(svg.find("<title>0Scatter0, ") != std::string::npos);
  CHECK(svg.find("Release") == std::string::npos);  // takes no time
}

}  // namespace
}  // namespace mtrain
