// The steps inside F and B: what the generator writes, what they cost, how they are drawn, and what
// the interpreter's cursor does with them.
#include "mtrain/pipeline/stage_steps.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/picture.h"
#include "mtrain/pipeline/schedule_text.h"
#include "mtrain/pipeline/simulate.h"
#include "mtrain/pipeline/step_cursor.h"
#include "unit/pipeline/parsed.h"

namespace mtrain {
namespace {

StageParts only_blocks(int64_t blocks, bool experts = false) {
  StageParts parts = whole_model(blocks, experts);
  return {parts.begin() + 1, parts.end() - 1};
}

std::string steps_text(const Program& of, const InnerStepRules& rules) {
  return to_text(expand_steps(of, rules), of, rules);
}

TEST_CASE("steps: without collectives, the parts in the order in which they compute") {
  InnerStepRules rules{.stages = {whole_model(2)}};
  CHECK_FALSE(rules.has_collectives());
  CHECK(steps_text(program("0F0 0B0 0R"), rules) ==
        "0F0: F(embed) F(0) F(1) F(head)\n"
        "0B0: B(head) B(1) B(0) B(embed)\n");
}

TEST_CASE("steps: a part is gathered before it computes and released when another one is next") {
  InnerStepRules rules{.stages = {whole_model(2)}, .sharded = true};
  // The head stays from F to B, and the embedding from B to the next F.
  CHECK(steps_text(program("0F0 0B0 0F1 0B1 0R"), rules) ==
        "0F0: Gather(embed) F(embed) Release(embed) Gather(0) F(0) Release(0) Gather(1) F(1) "
        "Release(1) Gather(head) F(head)\n"
        "0B0: B(head) Release(head) Gather(1) B(1) Release(1) Gather(0) B(0) Release(0) "
        "Gather(embed) B(embed)\n"
        "0F1: F(embed) Release(embed) Gather(0) F(0) Release(0) Gather(1) F(1) Release(1) "
        "Gather(head) F(head)\n"
        "0B1: B(head) Release(head) Gather(1) B(1) Release(1) Gather(0) B(0) Release(0) "
        "Gather(embed) B(embed) Release(embed)\n");
}

TEST_CASE("steps: with overlap the next part is gathered while one computes") {
  InnerStepRules rules{.stages = {whole_model(2)}, .sharded = true, .ahead = true};
  // What comes next after the turn is the part before it, which is there.
  CHECK(steps_text(program("0F0 0B0 0R"), rules) ==
        "0F0: Gather(embed) Gather(0) F(embed) Release(embed) Gather(1) F(0) Release(0) "
        "Gather(head) F(1) F(head)\n"
        "0B0: B(head) Release(head) Gather(0) B(1) Release(1) Gather(embed) B(0) Release(0) "
        "B(embed) Release(embed)\n");
  // Also across actions and stages.
  InnerStepRules two{.stages = {only_blocks(1), only_blocks(1)}, .sharded = true, .ahead = true};
  CHECK(steps_text(program("0F0 1F0 0F1"), two) ==
        "0F0: Gather(0) Gather(1:0) F(0)\n"
        "1F0: F(0) Release(0)\n"
        "0F1: F(0) Release(0)\n");
}

TEST_CASE("steps: a tied head reads the table of its stage, of another one, of a copy") {
  InnerStepRules rules{.stages = {whole_model(1)}, .sharded = true};
  rules.stages[0].back().also_reads = {PartId{0, 0}};
  CHECK(steps_text(program("0F0"), rules) ==
        "0F0: Gather(embed) F(embed) Release(embed) Gather(0) F(0) Release(0) Gather(head) "
        "Gather(embed) F(head) Release(head) Release(embed)\n");
  InnerStepRules copy{.stages = {{{.name = "table", .computes = false},
                                  {.name = "3", .block = true},
                                  {.name = "head", .also_reads = {PartId{0, 0}}}}},
                      .sharded = true};
  CHECK(steps_text(program("0F0"), copy) ==
        "0F0: Gather(3) F(3) Release(3) Gather(head) Gather(table) F(head) Release(head) "
        "Release(table)\n");
  InnerStepRules v{
      .stages = {{{.name = "embed"}}, {{.name = "head", .also_reads = {PartId{0, 0}}}}},
      .sharded = true,
      .ahead = true};
  // Where stages are gathered whole, only what belongs to another stage is left to gather.
  CHECK(steps_text(program("0Gather 0F0 0Release 1Gather 1F0 1B0 1Release 0Gather 0B0 0Release"),
                   v) ==
        "0F0: F(embed)\n"
        "1F0: Gather(0:embed) F(head)\n"
        "1B0: B(head) Release(0:embed)\n"
        "0B0: B(embed)\n");
  CHECK(steps_text(program("0Gather 1Gather 0F0 1F0 1B0 0B0 0Release 1Release"), v) ==
        "0F0: F(embed)\n1F0: F(head)\n1B0: B(head)\n0B0: B(embed)\n");
}

TEST_CASE("steps: experts exchange tokens on the way there and back, in both directions") {
  InnerStepRules rules{.stages = {only_blocks(2, true)}};
  rules.stages[0][0].exchanges = false;
  CHECK(rules.has_collectives());
  CHECK(steps_text(program("0F0 0B0 0W0"), rules) ==
        "0F0: F(0) F(1) Dispatch(1) Experts(1) Combine(1)\n"
        "0B0: Combine(1) Experts(1) Dispatch(1) B(1) B(0)\n"
        "0W0: W(1) W(0)\n");
  rules.recompute_experts = true;
  CHECK(steps_text(program("0B0"), rules) ==
        "0B0: Dispatch(1) Experts(1) Combine(1) Combine(1) Experts(1) Dispatch(1) B(1) B(0)\n");
  rules.recompute_experts = false, rules.recompute = true;
  rules.sharded = true;
  CHECK(steps_text(program("0B0"), rules) ==
        "0B0: Gather(1) F(1) Dispatch(1) Experts(1) Combine(1) Combine(1) Experts(1) Dispatch(1) "
        "B(1) Release(1) Gather(0) F(0) B(0) Release(0)\n");
}

TEST_CASE("steps: a block with experts stays gathered around their exchanges") {
  InnerStepRules rules{.stages = {only_blocks(2, true)}, .sharded = true};
  CHECK(steps_text(program("0F0 0B0"), rules) ==
        "0F0: Gather(0) F(0) Dispatch(0) Experts(0) Combine(0) Release(0) Gather(1) F(1) "
        "Dispatch(1) Experts(1) Combine(1)\n"
        "0B0: Combine(1) Experts(1) Dispatch(1) B(1) Release(1) Gather(0) Combine(0) Experts(0) "
        "Dispatch(0) B(0) Release(0)\n");
}

TEST_CASE("steps: blocks are computed again in groups, or the first ones one by one") {
  InnerStepRules rules{.stages = {whole_model(3)}, .recompute = true, .recompute_group = 2};
  CHECK(steps_text(program("0B0"), rules) ==
        "0B0: B(head) F(2) B(2) F(0) F(1) B(1) B(0) B(embed)\n");
  rules.recompute_first = true;
  CHECK(steps_text(program("0B0"), rules) == "0B0: B(head) B(2) F(1) B(1) F(0) B(0) B(embed)\n");
  // A block for further tokens is in no group, and not one of the first ones.
  for (bool first : {false, true}) {
    InnerStepRules further{.stages = {whole_model(3)},
                           .recompute = true,
                           .recompute_first = first,
                           .recompute_group = 2};
    StageParts& parts = further.stages[0];
    parts.insert(parts.end() - 1, {.name = "mtp.0", .block = true, .auxiliary = true});
    CHECK(steps_text(program("0B0"), further) ==
          (first ? "0B0: B(head) B(mtp.0) B(2) F(1) B(1) F(0) B(0) B(embed)\n"
                 : "0B0: B(head) F(mtp.0) B(mtp.0) F(2) B(2) F(0) F(1) B(1) B(0) B(embed)\n"));
    CHECK(steps_text(program("0F0"), further) == "0F0: F(embed) F(0) F(1) F(2) F(head)\n");
  }
  InnerStepRules group{
      .stages = {only_blocks(2)}, .sharded = true, .recompute = true, .recompute_group = 2};
  CHECK(steps_text(program("0B0"), group) ==
        "0B0: Gather(0) F(0) Release(0) Gather(1) F(1) B(1) Release(1) Gather(0) B(0) "
        "Release(0)\n");
}

TEST_CASE("steps: equal lists are written once") {
  InnerStepRules rules{.stages = {only_blocks(1)}};
  CHECK(steps_text(program("0F0 0F1 0B0 0F2 0F3 0F4"), rules) ==
        "0F0 0F1 0F2 and 2 more: F(0)\n0B0: B(0)\n");
}

TEST_CASE("steps: overlapped actions with exchanges may not gather parts") {
  InnerStepRules rules{.stages = {only_blocks(1, true)}, .sharded = true};
  CHECK_THROWS_WITH_AS(
      expand_steps(program("0F0 0F1+ 0B0 0B1"), rules),
      doctest::Contains("0F1+ overlaps with another action and reads parameters of stage 0, which "
                        "is not gathered then"),
      Error);
  CHECK(steps_text(program("0Gather 0F0 0F1+ 0B0 0Release"), rules).find("Gather") ==
        std::string::npos);
}

TEST_CASE("steps: gathers of blocks take time on the link, and memory while they are gathered") {
  Costs costs;
  costs.all = {.forward = 2, .backward = 2, .weights = 2, .activation = 0, .kept = 0};
  costs.all.block_gather = 1, costs.all.block_params = 10;
  costs.steps = {.stages = {only_blocks(2)}, .sharded = true};
  costs.overlap_gathers = false;
  // G0 F0 G1 F1 | B1 G0 B0: block 1 stays for backward.
  Simulated apart = simulated("0F0 0B0 0R", costs);
  CHECK(apart.makespan == 4 + 5);
  CHECK(apart.busy == std::vector<double>{6});
  CHECK(apart.peak == std::vector<double>{10});
  REQUIRE(apart.collectives[0].size() == 3);
  CHECK(apart.collectives[0][1].start == 2);
  CHECK(apart.collectives[0][1].end == 3);
  CHECK(apart.collectives[0][2].start == 6);
  CHECK(apart.collectives[0][2].action == 1);
  costs.overlap_gathers = true;  // waits for the first one; all others are ahead, or still there
  costs.steps.ahead = true;
  Simulated ahead = simulated("0F0 0B0 0R", costs);
  CHECK(ahead.collectives[0].size() == 2);
  CHECK(ahead.makespan == 1 + 6);
  CHECK(ahead.peak == std::vector<double>{20});
  costs.all.block_gather = 3;  // 3 F(0) 4, 6 F(1) 7
  CHECK(simulated("0F0 0B0 0R", costs).makespan == 7 + 4);
  costs.steps.ahead = costs.overlap_gathers = false;
  costs.all.weights = 10;  // W needs no parameters
  CHECK(simulated("0F0 0B0 0W0 0R", costs).makespan == (3 + 1 + 3 + 1) + (1 + 3 + 1) + 10);
}

TEST_CASE("steps: an exchange takes time, unless an overlapped action computes meanwhile") {
  Costs costs;
  costs.all.expert_share = 0.5;
  costs.steps = {.stages = {only_blocks(1, true)}};
  const char *apart = "0F0 0F1 0B0 0B1 0R", *overlapped = "0F0 0F1+ 0B0 0B1 0R";
  CHECK(simulated(apart, costs, 2).makespan == 6);
  CHECK(simulated(overlapped, costs, 2).makespan == 6);
  costs.all.exchange = 0.5;  // F takes 1 + 2 x 0.5, B takes 2 + 2 x 0.5
  Simulated one = simulated(apart, costs, 2);
  CHECK(one.makespan == 2 * 2 + 2 * 3);
  CHECK(one.busy == std::vector<double>{6});
  CHECK(one.collectives[0].size() == 8);
  // F 0-.5, Dispatch .5-1, Combine of B 1-1.5 | F 1-1.5, Combine 1.5-2 | B 1.5-2.5, Dispatch
  // 2.5-3 | F is complete | B 3-4: 4 together instead of 2 + 3.
  CHECK(simulated(overlapped, costs, 2).makespan == 2 + 4 + 3);
}

TEST_CASE("steps: pictures show the collectives inside an action") {
  Costs costs;
  costs.all.block_gather = 1;
  costs.steps = {.stages = {only_blocks(1)}, .sharded = true};
  costs.overlap_gathers = false;
  Simulated drawn = simulated("0F0 0B0 0R", costs);
  CHECK(draw_text(drawn, 8) == "rank 0 |F0  B0  |\n");
  std::string svg = draw_svg(drawn, 800, costs.steps);
  CHECK(svg.find("<title>0F0, 0.0 to 2.0</title>") != std::string::npos);
  CHECK(svg.find("<title>0F0 Gather(0), 0.0 to 1.0</title>") != std::string::npos);
  CHECK(svg.find("Release") == std::string::npos);
}

struct StageLog {
  std::string text;
  InnerStepCursor::Hooks hooks = {
      [this](PartId part) { text += cat("+", part.stage, ".", part.index, " "); },
      [this](PartId part) { text += cat("-", part.stage, ".", part.index, " "); }};
};

TEST_CASE("step cursor: gathers and releases run in the list's order, as far as reads need them") {
  InnerStepRules rules{.stages = {whole_model(2)}, .sharded = true};
  Program of = program("0F0");
  InnerStepLists lists = expand_steps(of, rules);
  StageLog log;
  InnerStepCursor cursor(of[0], lists[0], rules, log.hooks);
  auto after = [&](int16_t part) {
    log.text.clear();
    cursor.read({0, part});
    return log.text;
  };
  CHECK(after(0) == "+0.0 ");
  CHECK(after(0) == "");
  CHECK(after(1) == "-0.0 +0.1 ");
  CHECK(cursor.text() ==
        "\n  in the steps of 0F0:\n"
        "  Gather(embed) F(embed) Release(embed) Gather(0) F(0) Release(0) Gather(1) F(1) "
        "Release(1) Gather(head) F(head) …\n"
        "                                                  ^");
  CHECK(after(0) == "");                      // not in the list again: ParamBuckets refuses it
  CHECK(after(3) == "-0.1 +0.2 -0.2 +0.3 ");  // a part that nothing reads is passed
  log.text.clear();
  cursor.finish();
  CHECK(log.text == "-0.3 ");
}

TEST_CASE("step cursor: parameters of a block may be read before and after its exchanges") {
  InnerStepRules rules{.stages = {only_blocks(2, true)}, .sharded = true};
  Program of = program("0F0 0B0");
  InnerStepLists lists = expand_steps(of, rules);
  StageLog log;
  InnerStepCursor forward(of[0], lists[0], rules, log.hooks);
  forward.read({0, 0});
  forward.exchange(InnerStepKind::dispatch, false);
  forward.exchange(InnerStepKind::combine, false);
  forward.read({0, 0});
  CHECK(log.text == "+0.0 ");
  forward.read({0, 1});
  CHECK(log.text == "+0.0 -0.0 +0.1 ");
  InnerStepCursor backward(of[1], lists[1], rules, log.hooks);
  for (int16_t block : {1, 0}) {
    log.text.clear();
    backward.read({0, block});
    backward.exchange(InnerStepKind::combine, true);
    backward.read({0, block});
    backward.exchange(InnerStepKind::dispatch, true);
    backward.read({0, block});
    CHECK(log.text == (block == 1 ? "" : "-0.1 +0.0 "));
  }
  backward.finish();
}

TEST_CASE("step cursor: an exchange must be the next one of the list, and none may be missing") {
  InnerStepRules rules{.stages = {only_blocks(2, true)}};
  Program of = program("0F0 0B0");
  InnerStepLists lists = expand_steps(of, rules);
  const InnerStepCursor::Hooks none;
  {
    InnerStepCursor cursor(of[0], lists[0], rules, none);
    cursor.read({0, 0});
    CHECK_THROWS_WITH(cursor.exchange(InnerStepKind::combine, false),
                      doctest::Contains("experts start Combine of a forward, but the next exchange "
                                        "of 0F0 is Dispatch(0) of a forward"));
    CHECK_THROWS_WITH(cursor.exchange(InnerStepKind::dispatch, true),
                      doctest::Contains("Dispatch of a backward"));
    cursor.exchange(InnerStepKind::dispatch, false);
    cursor.exchange(InnerStepKind::combine, false);
    CHECK_THROWS_WITH(cursor.finish(), doctest::Contains("0F0 ended without Dispatch(1)"));
  }
  InnerStepCursor cursor(of[1], lists[1], rules, none);
  for (int block = 0; block < 2; ++block)
    cursor.exchange(InnerStepKind::combine, true), cursor.exchange(InnerStepKind::dispatch, true);
  CHECK_THROWS_WITH(cursor.exchange(InnerStepKind::dispatch, true),
                    doctest::Contains("the steps of 0B0 have no further exchange"));
  cursor.finish();
}

}  // namespace
}  // namespace mtrain
