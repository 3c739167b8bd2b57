#include "mtrain/optim/grad_reducer.h"

#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/dist/mesh.h"
#include "mtrain/nn/scope.h"

namespace mtrain {
namespace {

using namespace contract;

// 2 x 2 ranks: neighbours have summands of a part of `a` and of all of `b`; ranks two apart are
// replicas.
struct Square {
  Square(Communicator& world, int zero_stage, const ReduceOptions& options) {
    int rank = world.rank();
    pair = std::make_unique<Axis>("tp", world.split(rank / 2, rank, "tp"));
    replicas = world.split(rank % 2, rank, "dp");
    BuildSettings settings{
        .ctx = lab.context(), .parameters = list, .defer_memory = zero_stage > 0};
    Scope root(settings);
    a = &root.param("a", {{"x", 6}}, Init::zeros(), true);
    b = &root.param("b", {{"x", 3}}, Init::zeros(), true);
    c = &root.param("c", {{"x", 70}}, Init::zeros(), true);
    d = &root.param("d", {{"x", 5}}, Init::zeros(), true);
    a->partial.push_back({pair.get(), 2, 3});
    b->partial.push_back({pair.get(), 0, 3});
    buckets.emplace(lab.context(), list,
                    ShardingOptions{.dense = {.all = replicas.get()}, .zero_stage = zero_stage});
    reducer.emplace(*buckets, options);
  }
  void add(Parameter& p, double value) {
    InputGrad(p.leaf.get())
        .give(lab.context(), make(lab.context(), Values(static_cast<size_t>(p.numel()), value),
                                  p.local, DType::f32));
  }
  /// The steps of a program that start reductions at this time.
  void start(ReduceWhen when) {
    for (size_t b = 0; b < reducer->buckets().size(); ++b)
      if (reducer->buckets()[b].when == when) reducer->start(b);
  }
  /// The end of a micro-batch, as the program of a step has it.
  void micro_batch_done(bool last) {
    start(ReduceWhen::every_backward);
    if (last) start(ReduceWhen::last_backward);
    reducer->micro_batch_done();
    if (buckets->options().zero_stage >= 2) reducer->reduce_scatter();
  }
  void reduce() {
    start(ReduceWhen::step_end);
    reducer->finish_step();
  }
  /// What this rank has of a gradient; nothing for what others have.
  void check(const Parameter& p, const Values& want) {
    int64_t seen = 0;
    for (const ParamSlice& slice : buckets->slices()) {
      if (slice.parameter != &p) continue;
      Values got = values_of(slice.grad);
      CHECK(got == Values(want.begin() + slice.begin, want.begin() + slice.begin + slice.count));
      seen += slice.count;
    }
    CHECK(replicas->all_reduce_value(seen) ==
          p.numel() * (buckets->options().zero_stage == 0 ? 2 : 1));
  }
  /// Two steps of two micro-batches: `b` has a gradient of the second one alone, `d` none.
  void check_two_steps(int rank) {
    for (int step = 0; step < 2; ++step) {
      reducer->begin_step();
      list.clear_gradients();
      double mine = 1 << (2 * rank);  // 1, 4, 16, 64: every sum says who is in it
      for (int micro = 1; micro <= 2; ++micro) {
        add(*c, mine * micro);
        add(*a, mine * micro);
        if (micro == 2) add(*b, mine);
        micro_batch_done(micro == 2);
      }
      reduce();
      double own = rank % 2 ? 4 + 64 : 1 + 16, all = 1 + 4 + 16 + 64;
      check(*a, {3 * own, 3 * own, 3 * all, 3 * all, 3 * all, 3 * own});
      check(*b, {all, all, all});
      check(*c, Values(70, 3 * own));
      check(*d, Values(5, 0.0));
    }
  }

  Fixture lab{1};
  ParamList list;
  std::unique_ptr<Axis> pair;
  std::unique_ptr<Communicator> replicas;
  Parameter *a, *b, *c, *d;
  std::optional<ParamBuckets> buckets;
  std::optional<GradReducer> reducer;
};

TEST_CASE(
    "grad reducer: summands of other axes, replicas, micro-batches and gradients that never came") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool overlap : {false, true}) {
      CAPTURE(zero_stage);
      CAPTURE(overlap);
      run_ranks(4, [&](Communicator& world) {
        Square s(world, zero_stage, {.overlap = overlap});
        s.check_two_steps(world.rank());
      });
    }
}

TEST_CASE("grad reducer: a gradient that comes after its bucket was sent is reported as a bug") {
  run_ranks(2, [&](Communicator& world) {
    Fixture lab(1);
    ParamList list;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    Parameter& p = Scope(settings).param("p", {{"x", 4}}, Init::zeros(), true);
    ParamBuckets buckets(lab.context(), list, {.dense = {.all = &world}});
    GradReducer reducer(buckets, {.overlap = true});
    reducer.begin_step();
    InputGrad(p.leaf.get()).slot(lab.context(), {4}, DType::f32);
    reducer.start(0);
    CHECK_THROWS_WITH_AS(InputGrad(p.leaf.get()).slot(lab.context(), {4}, DType::f32),
                         doctest::Contains("a gradient of p came after the reduction of the bucket "
                                           "of p had started"),
                         Error);
    CHECK_THROWS_WITH_AS(reducer.start(0),
                         doctest::Contains("the bucket of p is reduced twice in a step"), Error);
    reducer.finish_step();
  });
}

TEST_CASE("grad reducer: a bucket that no step reduces is reported as a bug") {
  for (ReduceOptions options :
       {ReduceOptions{}, ReduceOptions{.overlap = true}, ReduceOptions{.in_order = true}})
    for (int zero_stage : {0, 1, 2, 3}) {
      if (options.in_order && zero_stage > 1) continue;
      CAPTURE(zero_stage);
      run_ranks(4, [&](Communicator& world) {
        Square s(world, zero_stage, options);
        s.reducer->begin_step();
        s.list.clear_gradients();
        s.add(*s.c, 1);
        s.reducer->micro_batch_done();
        if (zero_stage >= 2) s.reducer->reduce_scatter();
        s.start(ReduceWhen::step_end);
        if (!options.overlap && zero_stage < 2) return s.reducer->finish_step();
        CHECK_THROWS_WITH_AS(s.reducer->finish_step(),
                             doctest::Contains("the bucket of c to d is not reduced in this step"),
                             Error);
      });
    }
}

TEST_CASE(
    "grad reducer: gradients after the last reduction of ZeRO 2 and 3 are reported as a bug") {
  run_ranks(4, [&](Communicator& world) {
    Square s(world, 2, {});
    s.reducer->begin_step();
    s.list.clear_gradients();
    s.micro_batch_done(true);
    s.add(*s.c, 1);
    s.start(ReduceWhen::step_end);
    CHECK_THROWS_WITH_AS(s.reducer->finish_step(),
                         doctest::Contains("gradients in the bucket of c to d came after its last "
                                           "reduction in this step"),
                         Error);
  });
}

TEST_CASE("grad reducer: buckets as the steps of a program see them") {
  struct Row {
    int zero_stage;
    ReduceOptions options;
    ReduceWhen when;
    const char* collective;
    int64_t sent;  // of c and d: 128 elements with padding
  };
  const Row rows[] = {{0, {}, ReduceWhen::step_end, "all-reduce", 512},
                      {0, {.overlap = true}, ReduceWhen::last_backward, "all-reduce", 512},
                      {0,
                       {.overlap = true, .wire = GradientWire::bf16_sum_fp32},
                       ReduceWhen::last_backward,
                       "all-reduce",
                       256},
                      {0,
                       {.in_order = true, .overlap = true},
                       ReduceWhen::step_end,
                       "sum in the order of ranks",
                       512},
                      {1, {}, ReduceWhen::step_end, "reduce-scatter", 256},
                      {1, {.overlap = true}, ReduceWhen::last_backward, "reduce-scatter", 256},
                      {2, {}, ReduceWhen::every_backward, "reduce-scatter", 256},
                      {3, {.overlap = true}, ReduceWhen::every_backward, "reduce-scatter", 256}};
  for (const Row& row : rows) {
    CAPTURE(row.zero_stage);
    CAPTURE(row.collective);
    run_ranks(4, [&](Communicator& world) {
      Square s(world, row.zero_stage, row.options);
      const std::vector<GradientBucket>& buckets = s.reducer->buckets();
      REQUIRE(buckets.size() == 2);
      const GradientBucket &own = buckets[0], &partial = buckets[1];
      CHECK(own.parts == std::vector<PartId>{{0, 0}});
      CHECK(own.when == row.when);
      CHECK(own.blocking == (row.options.in_order || !row.options.overlap));
      CHECK(own.collective == row.collective);
      CHECK(own.axis == "dp");
      CHECK(own.ranks == 2);
      CHECK(own.sent == row.sent);
      CHECK(partial.when == ReduceWhen::step_end);  // a and b: complete only then
    });
  }
}

TEST_CASE("grad reducer: gradients that the program forgot to scatter are reported as a bug") {
  run_ranks(4, [&](Communicator& world) {
    Square s(world, 2, {});
    s.reducer->begin_step();
    s.list.clear_gradients();
    s.micro_batch_done(false);
    s.start(ReduceWhen::every_backward);
    s.reducer->micro_batch_done();
    CHECK_THROWS_WITH_AS(s.reduce(), doctest::Contains("of 2 micro-batches were scattered 1 times"),
                         Error);
  });
  run_ranks(2, [&](Communicator& world) {
    Fixture lab(1);
    ParamList list;
    ParamBuckets buckets(lab.context(), list, {.dense = {.all = &world}, .zero_stage = 1});
    GradReducer reducer(buckets, {});
    reducer.begin_step();
    CHECK_THROWS_WITH_AS(reducer.reduce_scatter(), doctest::Contains("only ZeRO 2 and 3"), Error);
  });
}

TEST_CASE("grad reducer: in order, with summands of other axes and gradients that never came") {
  for (int zero_stage : {0, 1}) {
    CAPTURE(zero_stage);
    run_ranks(4, [&](Communicator& world) {
      Square s(world, zero_stage, {.in_order = true});
      CHECK_THROWS_WITH_AS(s.micro_batch_done(true), doctest::Contains("outside of a step"), Error);
      s.check_two_steps(world.rank());
    });
  }
}

TEST_CASE("grad reducer: a partial sum reaches a rank whose backward has written none") {
  for (ReduceOptions options : {ReduceOptions{}, ReduceOptions{.in_order = true}})
    run_ranks(4, [&](Communicator& world) {
      Square s(world, 0, options);
      s.reducer->begin_step();
      s.list.clear_gradients();
      if (world.rank() == 0) s.add(*s.b, 8);
      s.micro_batch_done(true);
      s.reduce();
      s.check(*s.b, {8, 8, 8});
    });
}

TEST_CASE("grad reducer: gradients that are complete after the last micro-batch count") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool overlap : {false, true}) {
      CAPTURE(zero_stage);
      CAPTURE(overlap);
      run_ranks(4, [&](Communicator& world) {
        Square s(world, zero_stage, {.overlap = overlap});
        s.reducer->begin_step();
        s.list.clear_gradients();
        s.micro_batch_done(false);
        s.add(*s.d, 2);
        s.add(*s.c, 1);
        s.start(ReduceWhen::every_backward);
        s.start(ReduceWhen::last_backward);
        s.reduce();
        s.check(*s.c, Values(70, 2.0));
        s.check(*s.d, Values(5, 4.0));
      });
    }
}

TEST_CASE("grad reducer: nothing of a step that failed remains in the next one") {
  for (ReduceOptions options :
       {ReduceOptions{}, ReduceOptions{.overlap = true}, ReduceOptions{.in_order = true}})
    for (int zero_stage : {0, 1, 2, 3}) {
      if (options.in_order && zero_stage > 1) continue;
      CAPTURE(zero_stage);
      run_ranks(4, [&](Communicator& world) {
        Square s(world, zero_stage, options);
        for (int micro_batches : {1, 2}) {  // the first step ends before its second micro-batch
          s.reducer->begin_step();
          s.list.clear_gradients();
          for (int micro = 0; micro < micro_batches; ++micro) {
            s.add(*s.c, 1);
            s.micro_batch_done(micro + 1 == micro_batches);
          }
        }
        s.reduce();
        s.check(*s.c, Values(70, 4.0));
      });
    }
}

}  // namespace
}  // namespace mtrain
