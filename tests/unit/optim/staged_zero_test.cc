// Pipelines of two stages, each on two data-parallel ranks that shard gradients and parameters
// (ZeRO 3): the program says when the parameters of a stage are gathered.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "../pipeline/pipeline_harness.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/pipeline/sharding_actions.h"

namespace mtrain {
namespace {

using contract::Fixture;
using contract::Values;
using pipetest::Setup;
using pipetest::StagedModel;

struct StagedJob {
  const char* schedule;
  int64_t virtual_stages = 1, micro_batches = 4;
  int zero_stage = 3;
  int64_t resident_stages = 0;
  bool overlap = false;
  bool block_missing = false;  // in the parts from which the steps are made
  void (*change)(std::vector<GradientBucket>&) = nullptr;  // of the steps, not of the reducer
};

struct Left {
  std::map<std::string, Values> gradients;
  double loss = 0, evaluated = 0;
  int64_t gathered = 0;   // bytes sent by rank 0
  std::string first;      // the program of rank 0
  size_t parameters = 0;  // bytes of values at the peak of rank 0
};

/// One of the four ranks: two stages of a pipeline, each twice.
class StagedRank {
 public:
  StagedRank(const StagedJob& job, Communicator& world)
      : job_(job),
        pipeline_(world.split(world.rank() % 2, world.rank(), "pp")),
        replicas_(world.split(world.rank() / 2, world.rank(), "dp")),
        settings_{.ctx = lab_.context(), .parameters = list_, .defer_memory = job.zero_stage > 0} {
    Setup setup{.layers = 8,
                .micro_batches = job.micro_batches,
                .schedule = job.schedule,
                .ranks = 2,
                .virtual_stages = job.virtual_stages};
    StageMap map = setup.map();
    std::vector<StagePart> parts = split_layers({.layers = setup.layers}, map);
    PipelinePlace place{.map = map,
                        .rank = pipeline_->rank(),
                        .ranks = pipeline_.get(),
                        .resident_stages = job.resident_stages};
    for (int64_t s : map.stages_of(place.rank)) {
      const StagePart& part = parts[static_cast<size_t>(s)];
      list_.begin_stage(s);
      models_.push_back(
          std::make_unique<StagedModel>(Scope(settings_), setup,
                                        StageRange{part.embedding, part.head, s, map.stages(),
                                                   part.first_layer, part.num_layers}));
      place.stages.push_back(models_.back().get());
    }
    place.steps = {.stages = std::vector<StageParts>(static_cast<size_t>(map.stages())),
                   .sharded = job.zero_stage >= 3,
                   .ahead = job.overlap};
    for (int64_t s : map.stages_of(place.rank)) {
      const StagePart& part = parts[static_cast<size_t>(s)];
      place.steps.stages[static_cast<size_t>(s)] =
          stage_parts(list_.all(), s, part.embedding, part.head, 1);
      if (job.block_missing) place.steps.stages[static_cast<size_t>(s)][1].computes = false;
    }
    buckets_.emplace(lab_.context(), list_,
                     ShardingOptions{.dense = {.all = replicas_.get()},
                                     .zero_stage = job.zero_stage,
                                     .overlap_gather = job.overlap});
    reducer_.emplace(*buckets_, ReduceOptions{.overlap = job.overlap});
    interpreter_.emplace(lab_.context(), place, list_);
    std::vector<GradientBucket> listed = reducer_->buckets();
    if (job.change) job.change(listed);
    interpreter_->set_gradient_hooks(
        {[this] { reducer_->micro_batch_done(); }, [this] { reducer_->reduce_scatter(); },
         [this] { reducer_->finish_step(); }, [this](size_t bucket) { reducer_->start(bucket); },
         std::move(listed)});
    interpreter_->set_param_hooks({[this](int64_t stage) { buckets_->gather_stage(stage); },
                                   [this](int64_t stage) { buckets_->release_stage(stage); },
                                   {[this](PartId part) { buckets_->gather_part(part); },
                                    [this](PartId part) { buckets_->release_part(part); }}});
    buckets_->set_use_hooks({[this](PartId part) { interpreter_->before_read(part); },
                             [this](PartId part, const std::string& parameter) {
                               interpreter_->before_write(part, parameter);
                             },
                             {}});
    Schedule schedule = with_sharding_actions(
        make_schedule(job.schedule, setup.plan()),
        {.resident_stages = job.resident_stages, .reduce_scatter = job.zero_stage >= 2});
    program_ = lower(schedule, map)[static_cast<size_t>(place.rank)];
  }

  void train(Left& left, bool first) {
    for (int step = 0; step < 2; ++step) {  // the second must not see the first
      reducer_->begin_step();
      StepLoss loss = interpreter_->run(
          program_, [this](int64_t m) { return input(m); }, 100, 1);
      left.loss = reducer_->sum(loss.micro_batches);
    }
    StepLoss evaluated =
        interpreter_->evaluate(job_.micro_batches, [this](int64_t m) { return input(m); });
    left.evaluated = reducer_->sum(evaluated.micro_batches);
    buckets_->release_values();
    if (!first) return;
    left.gathered = replicas_->counters()[CommKind::all_gather].bytes_sent;
    left.first = to_text(program_);
    left.parameters = lab_.context().memory().at_peak()[MemoryUse::parameters];
  }
  void collect(Left& left) {
    for (const ParamSlice& slice : buckets_->slices()) {
      Values& whole = left.gradients[slice.parameter->name];
      whole.resize(static_cast<size_t>(slice.parameter->numel()), std::nan(""));
      Values part = contract::values_of(slice.grad);
      std::copy(part.begin(), part.end(), whole.begin() + slice.begin);
    }
  }

 private:
  ModelInput input(int64_t micro) {
    std::vector<int32_t> tokens, positions, targets;
    int64_t sample = replicas_->rank() * job_.micro_batches + micro;
    for (int64_t t = 0; t < pipetest::kLength; ++t) {
      tokens.push_back(static_cast<int32_t>((sample * 31 + t * 7) % pipetest::kVocab));
      positions.push_back(static_cast<int32_t>(t));
      targets.push_back(static_cast<int32_t>((sample * 13 + t * 5 + 1) % pipetest::kVocab));
    }
    ExecutionContext& ctx = lab_.context();
    ctx.first_token = sample * pipetest::kLength;
    return {contract::make_ids(ctx, tokens), contract::make_ids(ctx, positions),
            contract::make_ids(ctx, targets),
            std::make_shared<const std::vector<int32_t>>(
                std::vector<int32_t>{0, static_cast<int32_t>(pipetest::kLength)})};
  }

  const StagedJob job_;
  std::unique_ptr<Communicator> pipeline_, replicas_;
  Fixture lab_{1};
  ParamList list_;
  BuildSettings settings_;
  std::vector<std::unique_ptr<StagedModel>> models_;
  std::optional<ParamBuckets> buckets_;
  std::optional<GradReducer> reducer_;
  std::optional<Interpreter> interpreter_;
  Program program_;
};

Left train_stages(const StagedJob& job) {
  Left left;
  std::mutex guard;
  run_ranks(4, [&](Communicator& world) {
    StagedRank rank(job, world);
    Left own;
    rank.train(own, world.rank() == 0);
    {
      std::lock_guard lock(guard);
      if (world.rank() == 0) own.gradients = std::move(left.gradients), left = std::move(own);
      rank.collect(left);
    }
    world.barrier();
  });
  return left;
}

bool same_left(const Left& a, const Left& b) {
  return a.gradients == b.gradients && a.loss == b.loss && a.evaluated == b.evaluated;
}

TEST_CASE("staged zero: the same bits for any number of resident stages, and fewer bytes") {
  struct Row {
    const char* schedule;
    int64_t virtual_stages;
  };
  for (const Row& row : {Row{"1f1b", 1}, {"zb_h1", 1}, {"interleaved", 2}, {"zb_v", 2}})
    for (bool overlap : {false, true}) {
      INFO(std::string(row.schedule), overlap ? " overlap" : "");
      StagedJob job{
          .schedule = row.schedule, .virtual_stages = row.virtual_stages, .overlap = overlap};
      Left before = train_stages(job);
      CHECK(before.first.find("Gather") == std::string::npos);
      CHECK(before.first.find("0Scatter3") != std::string::npos);
      for (int64_t stages = 1; stages <= row.virtual_stages; ++stages) {
        CAPTURE(stages);
        job.resident_stages = stages;
        Left now = train_stages(job);
        CHECK(same_left(now, before));
        CHECK(now.first.starts_with("0Gather "));
        CHECK(now.gathered < before.gathered);
        CHECK(now.parameters > before.parameters);
        before = now;
      }
    }
}

TEST_CASE(
    "staged zero: reading what the list of steps has not gathered is an error with both names") {
  StagedJob job{.schedule = "1f1b", .block_missing = true};
  for (const char* part :
       {"'layers.0.norm.", "is read, but its values are not gathered",
        "in the steps of 0F0:\n  Gather(embed) F(embed) Release(embed) Gather(1)", "(0F0) of "})
    CHECK_THROWS_WITH_AS(train_stages(job), doctest::Contains(part), Error);
}

TEST_CASE(
    "staged zero: a reduction too early, too often or not at all is an error with all names") {
  auto throws = [](const StagedJob& job, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      CHECK_THROWS_WITH_AS(train_stages(job), doctest::Contains(part), Error);
  };
  auto early = [](std::vector<GradientBucket>& buckets) {
    for (GradientBucket& bucket : buckets) bucket.parts = {buckets.front().parts.back()};
  };
  auto missing = [](std::vector<GradientBucket>& buckets) { buckets.pop_back(); };
  for (int zero_stage : {0, 1}) {
    StagedJob job{.schedule = "1f1b", .zero_stage = zero_stage, .overlap = true};
    job.change = early;
    throws(job, {"a gradient of ", "came after the reduction of the bucket of ",
                 " had started\n  in the steps of ", ") Reduce(", "\n  in action "});
    job.change = missing;
    throws(job,
           {"the bucket of ", " is not reduced in this step: its program has no Reduce of it"});
    job.change = [](std::vector<GradientBucket>& buckets) {
      for (GradientBucket& bucket : buckets) bucket.when = ReduceWhen::every_backward;
    };
    throws(job, {"came after the reduction of the bucket of "});
  }
  for (int zero_stage : {2, 3}) {
    StagedJob job{.schedule = "1f1b", .zero_stage = zero_stage};
    job.change = early;
    throws(job, {"gradients in the bucket of ", " came after its last reduction in this step"});
    job.change = missing;
    throws(job,
           {"the bucket of ", " is not reduced in this step: its program has no Reduce of it"});
  }
}

TEST_CASE("staged zero: the same bits with and without overlap, in every schedule") {
  struct Row {
    const char* schedule;
    int64_t virtual_stages;
  };
  for (const Row& row :
       {Row{"1f1b", 1}, {"gpipe", 1}, {"zb_h1", 1}, {"interleaved", 2}, {"zb_v", 2}})
    for (int zero_stage : {0, 1, 2, 3}) {
      INFO(std::string(row.schedule), ", zero ", zero_stage);
      StagedJob job{
          .schedule = row.schedule, .virtual_stages = row.virtual_stages, .zero_stage = zero_stage};
      Left plain = train_stages(job);
      REQUIRE(plain.gradients.size() > 50);
      job.overlap = true;
      CHECK(same_left(train_stages(job), plain));
    }
}

TEST_CASE("staged zero: one micro-batch per rank ends in the bits of ranks that share nothing") {
  StagedJob job{.schedule = "1f1b", .micro_batches = 1, .zero_stage = 0};
  Left whole = train_stages(job);
  REQUIRE(whole.gradients.size() > 50);
  job.zero_stage = 3;
  for (int64_t stages : {0, 1}) {
    job.resident_stages = stages;
    CHECK(same_left(train_stages(job), whole));
  }
}

}  // namespace
}  // namespace mtrain
