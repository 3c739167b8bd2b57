// The simulator by hand: costs, transfers of both kinds, memory, and words for what is wrong.
#include "mtrain/pipeline/simulate.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/schedule_text.h"
#include "unit/pipeline/parsed.h"

namespace mtrain {
namespace {

TEST_CASE("simulate: costs per stage and the time of a transfer") {
  Plan plan{2, 2};
  Costs costs{.stages = {{.forward = 1, .backward = 2, .weights = 1},
                         {.forward = 2, .backward = 3, .weights = 1}},
              .send = 0.5};
  // rank 0: F 0-1, F 1-2;        B0 at 1+.5+2+4+.5=8..11, B1 waits for 3.5+4+2+4+.5=14, ..17
  // rank 1: F0 1.5-3.5, B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
  Simulated run = simulate(one_f_one_b(plan), plan, costs);
  REQUIRE(run.faults.empty());
  const auto& first = run.timeline[0];
  REQUIRE(first.size() == 5);
  CHECK(first[2].action == Action{ActionKind::backward, 0, 0});
  CHECK(first[2].start == doctest::Approx(8));
  CHECK(first[2].end == doctest::Approx(11));
  CHECK(first[3].start == doctest::Approx(14));
  CHECK(run.timeline[1][3].start == doctest::Approx(9.5));
  CHECK(run.makespan == doctest::Approx(17));
  CHECK(run.busy == std::vector<double>{8, 12});
  CHECK(run.bubble == doctest::Approx(1 - 20.0 / 34));
}

TEST_CASE("simulate: memory from forward to the last backward, with what W keeps") {
  Plan plan{2, 3};
  Costs costs{.stages = {}, .all = {.activation = 10, .kept = 4}};
  Simulated run = simulate(
      schedule("0F0 0F1 0B0 0F2 0B1 0B2 0W0 0W1 0W2 0R\n1F0 1B0 1W0 1F1 1B1 1F2 1B2 1W1 1W2 1R"),
      plan, costs);
  REQUIRE(run.faults.empty());
  CHECK(run.peak == std::vector<double>{24, 14});  // 10+10, 4+10+10; 10, then 4+10
  CHECK(run.peak_activations == 3);
  Simulated whole = simulate(one_f_one_b(plan), plan, costs);
  CHECK(whole.peak == std::vector<double>{20, 10});
  costs.all.kept = 12;  // gradients of outputs may take more than what is let go
  CHECK(simulate(schedule("0F0 0B0 0W0 0R"), {1, 1}, costs).peak == std::vector<double>{12});
}

TEST_CASE("simulate: order is one in which all can run") {
  Plan plan{4, 6};
  Simulated run = simulate(zb_h1(plan), plan);
  std::vector<const TimedAction*> all(static_cast<size_t>(4 * (6 * 3 + 1)));
  for (const auto& spans : run.timeline)
    for (const TimedAction& span : spans) all.at(static_cast<size_t>(span.order)) = &span;
  std::vector<std::vector<double>> forward_end(4, std::vector<double>(6, -1));
  for (const TimedAction* span : all) {
    REQUIRE(span);
    Action a = span->action;
    auto s = static_cast<size_t>(a.stage), m = static_cast<size_t>(a.micro);
    if (a.what == ActionKind::forward) forward_end[s][m] = span->end;
    if (a.what == ActionKind::forward && s > 0) CHECK(forward_end[s - 1][m] >= 0);
    if (a.what == ActionKind::backward) CHECK(forward_end[s][m] >= 0);
  }
}

constexpr const char* kSendFirst =  // what two neighbours do when each sends before it receives
    "0F0 0SendX0 0F1 0SendX1 0RecvG0 0B0 0RecvG1 0B1 0R\n"
    "1RecvX0 1F0 1B0 1SendG0 1RecvX1 1F1 1B1 1SendG1 1R";

TEST_CASE(
    "simulate: sends that stand still can wait for each other for ever; sends that are only "
    "started cannot") {
  Plan plan{2, 2};
  Schedule crossed = schedule(kSendFirst);
  CHECK(simulate(crossed, plan).faults.empty());
  Simulated run = simulate(crossed, plan, {.stages = {}, .transfer = TransferMode::rendezvous});
  REQUIRE(run.faults.size() == 2);
  CHECK(run.faults[0] == "rank 0 waits forever at 0SendX1 for 1RecvX1 of rank 1");
  CHECK(run.faults[1] == "rank 1 waits forever at 1SendG0 for 0RecvG0 of rank 0");
}

TEST_CASE(
    "simulate: a rendezvous ends for both sides when the later one has come and the data is over") {
  Plan plan{2, 1};
  Schedule lowered = lower(one_f_one_b(plan), StageMap::looping(2));
  Simulated run =
      simulate(lowered, plan, {.stages = {}, .send = 0.25, .transfer = TransferMode::rendezvous});
  REQUIRE(run.faults.empty());
  CHECK(run.timeline[0][1].action == Action{ActionKind::send_forward, 0, 0});
  CHECK(run.timeline[0][1].start == 1);
  CHECK(run.timeline[0][1].end == 1.25);
  CHECK(run.timeline[1][0].start == 0);
  CHECK(run.timeline[1][0].end == 1.25);
  CHECK(run.makespan == 1 + .25 + 3 + .25 + 2);
}

TEST_CASE("simulate: says what is waited for, and what is wrong with single actions") {
  struct Row {
    const char *text, *fault;
    int64_t stages = 1, micro_batches = 1;
  };
  const Row rows[] = {
      {"0B0 0F0 0R", "rank 0 waits forever at 0B0 for 0F0, which comes later in its program"},
      {"0F0 0R 0B0", "rank 0 waits forever at 0R for 0B0, which comes later in its program"},
      {"0F0 0F1 0B0 0R 0B1", "rank 0 waits forever at 0R for 0B1, which comes later in its program",
       1, 2},
      {"0F0 0B0", "stage 0 never reduces its gradients"},
      {"0B0 0R",
       "stage 0 never runs forward of 0\nrank 0 waits forever at 0B0 for 0F0, which no rank runs"},
      {"0F0 0F1 0B0 0W0 0B1 0R",
       "stage 0 never runs weight gradients of 1\nrank 0 waits forever at 0R for 0W1, which no "
       "rank runs",
       1, 2},
      {"0F0 0B0 0R 0R", "rank 0 repeats an action: 0R"},
      {"0F0 0B0 0R 3W0",
       "rank 0 has a stage or micro-batch that does not exist: 3W0\nstage 0 never runs weight "
       "gradients of 0\nrank 0 waits forever at 0R for 0W0, which no rank runs"},
      {"0F0 0SendX0 0B0 0R", "rank 0 transfers to or from a stage that does not exist: 0SendX0"},
      {"0RecvX0 0F0 0B0 0R", "rank 0 transfers to or from a stage that does not exist: 0RecvX0"},
      {"0F0 1F0\n1B0 0B0 0R 1R",
       "stage 0 runs on rank 0 and on rank 1\nstage 1 runs on rank 0 and on rank 1", 2},
      {"0F0 0SendX0 1RecvX0 1F0 1B0 0B0 0R 1R", "rank 0 transfers to itself: 0SendX0", 2},
      {"0F0 0B0 0R\n1F0 1B0 1R", "", 2},
      {"0F0 0SendX0 0RecvG0 0B0 0R\n1F0 1B0 1SendG0 1R",
       "rank 0 waits forever at 0B0 for 1SendG0 of rank 1\nrank 1 waits forever at 1F0 for "
       "1RecvX0, which no rank runs",
       2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    Simulated run = simulate(schedule(row.text), {row.stages, row.micro_batches});
    CHECK(join(run.faults, "\n") == row.fault);
  }
}

TEST_CASE(
    "simulate: a schedule that is too large is refused, and faults in many places give a short "
    "error") {
  CHECK_THROWS_AS(simulate({}, {30000, 1000}), Error);
  CHECK_THROWS_AS(simulate({}, {1, int64_t{1} << 40}), Error);
  CHECK(simulate({}, {8, 1000}).faults.size() == 32);
  CHECK_THROWS_AS(simulate({}, {2, 1}, {.stages = std::vector<StageCosts>(3)}), Error);
}

TEST_CASE(
    "planning for 64 ranks with 8 stages each and 512 micro-batches") {  // how the work grows:
                                                                         // tests/growth
  Plan plan{.stages = 64 * 8, .micro_batches = 512, .virtual_stages = 8};
  Schedule made = interleaved(plan);
  Simulated run = simulate(made, plan);
  CHECK(run.faults.empty());
  CHECK(run.bubble == doctest::Approx(63.0 / (8 * 512 + 63)).epsilon(1e-12));
  CHECK(lower(std::move(made), StageMap::looping(64, 8)).size() == 64);
}

}  // namespace
}  // namespace mtrain
