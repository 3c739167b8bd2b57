// A model split into stages trains as on one rank: the same losses and, since every parameter's
// gradient adds up micro-batch by micro-batch in one order under every schedule, the same gradients
// to the bit.
#include <doctest/doctest.h>

#include <cmath>

#include "unit/pipeline/pipeline_harness.h"

namespace mtrain::pipetest {
namespace {

/// On one rank, with the gradient accumulation that everything is compared with.
Outcome alone(Setup setup) {
  setup.ranks = setup.virtual_stages = 1;
  setup.schedule = "1f1b";
  setup.first_stage_layers = 0;
  setup.layout = "";
  return train(setup);
}

void check_same(const Setup& setup, const Outcome& want) {
  INFO(setup.schedule, ", ", setup.ranks, " ranks x ", setup.virtual_stages, ", ", setup.layers,
       " layers, ", setup.micro_batches, " micro-batches, dropout ", setup.drop,
       std::string(setup.recompute ? ", recomputed" : ""), " ", std::string(name(setup.dtype)));
  Outcome got = train(setup);
  CHECK(std::isfinite(want.losses[0].loss_sum));
  for (const StepLoss& loss : got.losses) {  // every rank knows them
    CHECK(loss.micro_batches == want.losses[0].micro_batches);
    CHECK(loss.loss_sum == want.losses[0].loss_sum);
  }
  CHECK(got.evaluated.micro_batches == want.evaluated.micro_batches);
  CHECK(got.evaluated.loss_sum == want.evaluated.loss_sum);
  CHECK(got.gradients.size() == want.gradients.size());
  for (const auto& [name, gradient] : want.gradients) {
    INFO(name);
    auto found = got.gradients.find(name);
    REQUIRE(found != got.gradients.end());
    CHECK(found->second == gradient);
  }
}

struct Way {
  const char* schedule;
  int64_t virtual_stages;
};
constexpr Way kWays[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb_h1", 1}, {"zb_v", 2}};

TEST_CASE("stages: every schedule gives one rank's losses and gradients, to the bit") {
  for (float drop : {0.0f, 0.3f}) {
    Setup base{.layers = 8, .micro_batches = 4, .rows = 2, .drop = drop, .recompute = drop > 0};
    Outcome want = alone(base);
    CHECK(want.losses[0].loss_sum > 10);
    CHECK(want.gradients.size() == 8 * 10 + 2);
    for (const Way& way : kWays)
      for (int64_t ranks : {2, 4}) {
        Setup setup = base;
        setup.schedule = way.schedule, setup.virtual_stages = way.virtual_stages,
        setup.ranks = ranks;
        check_same(setup, want);
      }
  }
}

TEST_CASE(
    "stages: overlapped forward and backward give the same bits, dropout and recomputation "
    "included") {
  for (float drop : {0.0f, 0.3f}) {
    Setup base{.layers = 8, .micro_batches = 8, .rows = 2, .drop = drop, .recompute = drop > 0};
    Outcome want = alone(base);
    for (auto [ranks, virtual_stages] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {4, 2}})
      for (bool late : {false, true}) {
        Setup setup = base;
        setup.schedule = "combined", setup.ranks = ranks, setup.virtual_stages = virtual_stages;
        setup.overlapped = true, setup.adds_weight_actions = late;
        check_same(setup, want);
      }
  }
}

TEST_CASE("stages: weights late, the head's at the end, transfers in batches: the same bits") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Setup base{.layers = 8, .micro_batches = 6, .rows = 2, .dtype = dtype};
    Outcome want = alone(base);
    for (const Way& way : kWays)
      for (int64_t heads : {-1, 0, 1, 2, 100}) {
        if (std::string_view(way.schedule) == "interleaved" && heads > 1) continue;
        Setup setup = base;
        setup.schedule = way.schedule, setup.virtual_stages = way.virtual_stages, setup.ranks = 2;
        setup.adds_weight_actions = true, setup.defer_head_wgrad = heads >= 0,
        setup.deferred_head_limit = std::max<int64_t>(0, heads);
        setup.transfers = {.blocking = way.virtual_stages > 1, .batched = true};
        if (setup.transfers.blocking) setup.costs.transfer = TransferMode::rendezvous;
        check_same(setup, want);
      }
  }
}

TEST_CASE("stages: a head that is put off keeps the gradients of as many micro-batches as it may") {
  Setup setup{.layers = 4, .micro_batches = 8, .rows = 2, .ranks = 2};
  size_t at_once = train(setup).peak_activations[1];
  setup.defer_head_wgrad = true, setup.deferred_head_limit = 2;
  size_t two = train(setup).peak_activations[1];
  setup.deferred_head_limit = 0;
  size_t all = train(setup).peak_activations[1];
  CHECK(at_once < two);
  CHECK(two < all);
}

TEST_CASE("stages: in bf16 and fp16 as well") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Setup base{.layers = 4, .micro_batches = 3, .dtype = dtype};
    Outcome want = alone(base);
    for (const Way& way : kWays) {
      if (std::string_view(way.schedule) == "interleaved") continue;  // its groups do not divide 3
      Setup setup = base;
      setup.schedule = way.schedule, setup.virtual_stages = way.virtual_stages, setup.ranks = 2;
      check_same(setup, want);
    }
  }
}

TEST_CASE(
    "stages: blocks shared out unevenly, stages without blocks, more and fewer micro-batches than "
    "ranks") {
  for (int64_t micro_batches : {1, 2, 7}) {
    Setup base{.layers = 5, .micro_batches = micro_batches};
    Outcome want = alone(base);
    Setup ends = base;
    ends.ranks = 3, ends.first_stage_layers = 1;
    check_same(ends, want);
    Setup drawn = base;
    drawn.ranks = 4, drawn.layout = "E|ttt||ttL", drawn.schedule = "zb_h1";
    check_same(drawn, want);
    drawn.ranks = 2, drawn.virtual_stages = 2, drawn.schedule = "zb_v", drawn.layout = "Et|t||tttL";
    check_same(drawn, want);
  }
}

TEST_CASE("stages: transfers that are waited for where they stand change nothing") {
  Setup base{.layers = 4, .micro_batches = 4};
  Outcome want = alone(base);
  for (const Way& way : kWays)
    for (bool blocking : {false, true}) {
      Setup setup = base;
      setup.schedule = way.schedule, setup.virtual_stages = way.virtual_stages, setup.ranks = 2;
      setup.transfers.blocking = blocking;
      setup.costs.transfer = TransferMode::rendezvous;
      check_same(setup, want);
    }
}

TEST_CASE("stages: micro-batches of different lengths need variable_shapes") {
  Setup base{.layers = 4, .micro_batches = 4, .longer_rows_at = 2};
  Outcome want = alone(base);
  Setup setup = base;
  setup.ranks = 2;
  CHECK_THROWS_WITH_AS(train(setup),
                       doctest::Contains("stage 0 sends shape [18, 16] for micro-batch 2"), Error);
  setup.transfers.variable_shapes = true;
  for (const Way& way : kWays) {
    setup.schedule = way.schedule, setup.virtual_stages = way.virtual_stages;
    check_same(setup, want);
  }
}

TEST_CASE("stages: 1f1b keeps fewer activations than gpipe, the last rank the fewest") {
  Setup setup{.layers = 4, .micro_batches = 8, .rows = 16, .schedule = "gpipe", .ranks = 4};
  Outcome gpipe = train(setup);
  setup.schedule = "1f1b";
  Outcome steady = train(setup);
  CHECK(steady.peak_activations[0] < 0.7 * static_cast<double>(gpipe.peak_activations[0]));
  CHECK(steady.peak_activations[1] < 0.6 * static_cast<double>(gpipe.peak_activations[1]));
  CHECK(steady.peak_activations[2] < steady.peak_activations[1]);
}

TEST_CASE("stages: a failure on one rank is the job's, and says where it happened") {
  Setup setup{.layers = 4, .micro_batches = 4, .ranks = 2};
  auto broken = [&](int rank, int call) {
    run_ranks(2, [&](Communicator& ranks) {
      StagedRank staged(setup, &ranks);
      if (ranks.rank() == rank) staged.models[0]->fail_at = call;
      staged.step();
    });
  };
  CHECK_THROWS_WITH_AS(broken(1, 2), doctest::Contains("it broke\n  in action"), Error);
  CHECK_THROWS_WITH_AS(broken(1, 2), doctest::Contains("(1F2) of 17 of pipeline rank 1:\n"), Error);
  CHECK_THROWS_WITH_AS(
      broken(0, 0),
      doctest::Contains("0F0 0SendX0 0F1 0SendX1 0RecvG0 0B0 0F2 0RecvG1 0SendX2 …\n  ^"), Error);
}

}  // namespace
}  // namespace mtrain::pipetest
