// Ways to share parameters out among data-parallel ranks: the same training, less memory, the same
// bytes.
#include <doctest/doctest.h>

#include <cmath>

#include "mtrain/optim/bucket_plan.h"
#include "zero_fixture.h"

namespace mtrain {
namespace {

using namespace contract;
using zero::Job;
using zero::Outcome;
using zero::same;
using zero::train;

double distance(const std::map<std::string, Values>& a, const std::map<std::string, Values>& b) {
  double difference = 0, size = 0;
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) {
      double d = values[i] - b.at(name)[i];
      difference += d * d, size += values[i] * values[i];
    }
  return std::sqrt(difference / size);
}

int64_t padded(int64_t numel, const Outcome& o, int64_t shards) {
  return numel + o.buckets * shards * kBucketAlignment + 40 * kBucketAlignment;
}

TEST_CASE("zero 1: the same bits as zero 0, and the same bytes") {
  for (int ranks : {2, 3, 4})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Job job{.ranks = ranks, .dtype = dtype};
      Outcome plain = train(job);
      CHECK(plain.losses.back() < plain.losses.front());
      job.zero_stage = 1;
      for (bool deferred : {true, false}) {
        job.deferred = deferred;
        INFO(zero::text(job));
        Outcome shared = train(job);
        CHECK(same(shared, plain));
        CHECK(shared.gradients == plain.gradients);
        if (dtype == DType::f32)
          CHECK(shared.bytes.total().bytes_sent == plain.bytes[CommKind::all_reduce].bytes_sent);
        CHECK(shared.bytes[CommKind::all_reduce].bytes_sent == 0);
      }
    }
}

TEST_CASE("zero 2 and 3: the same bits with one micro-batch; with several, sums in another order") {
  for (int ranks : {2, 3, 4})
    for (DType dtype : {DType::f32, DType::bf16})
      for (int micro_batches : {1, 2}) {
        Job job{.ranks = ranks, .micro_batches = micro_batches, .dtype = dtype};
        Outcome plain = train(job);
        for (int zero_stage : {2, 3}) {
          job.zero_stage = zero_stage;
          INFO(zero::text(job));
          Outcome shared = train(job);
          if (micro_batches == 1) CHECK(same(shared, plain));
          CHECK(std::fabs(shared.losses.front() - plain.losses.front()) < 1e-6);
          CHECK(std::fabs(shared.losses.back() - plain.losses.back()) <
                (dtype == DType::f32 ? 1e-5 : 1e-2));
          CHECK(distance(shared.gradients, plain.gradients) < (dtype == DType::f32 ? 1e-4 : 5e-2));
        }
        Job two = job, three = job;
        two.zero_stage = 2, three.zero_stage = 3, two.bucket_size = three.bucket_size = 0;
        CHECK(same(train(two), train(three)));
      }
}

TEST_CASE("overlap, recomputation, unused parameters and bucket sizes change no bit") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool in_blocks : {false, true}) {
      Job job{.ranks = 3, .zero_stage = zero_stage, .recompute = in_blocks, .spare = true};
      Outcome plain = train(job);
      job.overlap = true;
      INFO(zero::text(job));
      CHECK(same(train(job), plain));
      for (int64_t bucket_size : {1, 3000, 0}) {
        job.bucket_size = bucket_size;
        CHECK(same(train(job), plain));
      }
      job.recompute = !in_blocks;
      CHECK(same(train(job), plain));
    }
}

TEST_CASE("padded buckets: the same bits in messages of whole multiples") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool overlap : {false, true}) {
      Job job{.ranks = 4, .zero_stage = zero_stage, .overlap = overlap, .micro_batches = 1};
      Outcome plain = train(job);
      job.padded = true;
      INFO(zero::text(job));
      Outcome padded = train(job);
      CHECK(same(padded, plain));
      CHECK(padded.gradients == plain.gradients);
      const CommKind kind = zero_stage == 0 ? CommKind::all_reduce : CommKind::reduce_scatter;
      const int64_t each =
          (zero_stage == 0 ? 2 : 1) * (job.ranks - 1) * kBucketPadding * 4 / job.ranks;
      CHECK(padded.bytes[kind].bytes_sent == each * padded.buckets);
    }
}

TEST_CASE(
    "gradients that are communicated in bf16: the same for any overlap, close to those in fp32") {
  for (GradientWire wire : {GradientWire::bf16_sum_fp32, GradientWire::bf16_sum_bf16})
    for (int zero_stage : {0, 1, 2, 3})
      for (int hsdp : {1, 2}) {
        if (zero_stage == 0 && hsdp > 1) continue;
        Job job{.ranks = 4, .zero_stage = zero_stage, .hsdp = hsdp, .micro_batches = 1};
        Outcome wide = train(job);
        job.wire = wire;
        INFO(zero::text(job));
        Outcome narrow = train(job);
        const double apart = distance(narrow.gradients, wide.gradients);
        CHECK(apart > 1e-5);  // something was rounded
        CHECK(apart < 5e-2);
        CHECK(std::fabs(narrow.losses.back() - wide.losses.back()) < 5e-3);
        job.overlap = true;
        CHECK(same(train(job), narrow));
        job.padded = true;
        CHECK(same(train(job), narrow));
      }
  Job alone{.ranks = 1, .micro_batches = 2};
  Outcome wide = train(alone);
  alone.wire = GradientWire::bf16_sum_fp32;
  CHECK(same(train(alone), wide));  // nothing is sent
}

TEST_CASE("in order: the same bits on 1, 2, 3 and 4 ranks, with and without shared state") {
  Job job{.ranks = 1, .in_order = true, .micro_batches = 12};
  Outcome one = train(job);
  for (int ranks : {2, 3, 4})
    for (int zero_stage : {0, 1}) {
      job.ranks = ranks, job.zero_stage = zero_stage, job.micro_batches = 12 / ranks;
      INFO(zero::text(job));
      CHECK(same(train(job), one));
    }
}

TEST_CASE("an optimizer of whole matrices gets them whole") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int zero_stage : {0, 1, 2, 3})
      for (int ranks : {2, 3}) {
        Job job{.ranks = ranks, .zero_stage = zero_stage, .dtype = dtype};
        Outcome plain = train(job);
        job.whole = true;
        INFO(zero::text(job));
        CHECK(same(train(job), plain));
      }
  for (int zero_stage : {1, 3})
    for (bool outer : {false, true}) {
      if (outer && zero_stage < 3) continue;
      Job job{.ranks = 4, .zero_stage = zero_stage, .hsdp = 2, .outer_zero = outer};
      Outcome plain = train(job);
      job.whole = true;
      INFO(zero::text(job));
      CHECK(same(train(job), plain));
    }
}

TEST_CASE("hybrid sharding: copies of shards, and copies that share the state") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int zero_stage : {1, 2, 3}) {
      Job job{.ranks = 4, .zero_stage = zero_stage, .micro_batches = 1, .dtype = dtype};
      Outcome flat = train(job);
      job.hsdp = 2;
      INFO(zero::text(job));
      Outcome hybrid = train(job);
      CHECK(distance(hybrid.gradients, flat.gradients) < (dtype == DType::f32 ? 1e-4 : 5e-2));
      CHECK(std::fabs(hybrid.losses.back() - flat.losses.back()) <
            (dtype == DType::f32 ? 1e-5 : 1e-2));
      job.overlap = true;
      CHECK(same(train(job), hybrid));
      if (zero_stage < 3) continue;
      job.outer_zero = true;
      Outcome outer = train(job);
      CHECK(same(outer, hybrid));
      CHECK(outer.held[1][MemoryUse::optimizer] < hybrid.held[1][MemoryUse::optimizer]);
    }
}

TEST_CASE("actions of the program gather a stage once per step: the same bits, fewer bytes") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool overlap : {false, true})
      for (int hsdp : {1, 2}) {
        Job job{.ranks = 4, .zero_stage = zero_stage, .overlap = overlap, .spare = true};
        if (zero_stage > 0) job.hsdp = hsdp;
        job.outer_zero = zero_stage == 3 && hsdp == 2;
        Outcome blocks = train(job);
        job.stages = true;
        INFO(zero::text(job));
        Outcome stages = train(job);
        CHECK(same(stages, blocks));
        int64_t before = blocks.bytes[CommKind::all_gather].bytes_sent,
                after = stages.bytes[CommKind::all_gather].bytes_sent;
        CHECK(stages.bytes[CommKind::reduce_scatter].bytes_sent ==
              blocks.bytes[CommKind::reduce_scatter].bytes_sent);
        if (zero_stage < 3)
          CHECK(after == before);
        else
          // Forward and backward of two micro-batches gather each block; with overlap, a block
          // stays where the direction turns.
          CHECK((overlap ? 2 : 3) * after < before);
        for (size_t r = 0; r < stages.held.size(); ++r)
          CHECK(stages.held[r].total() == blocks.held[r].total());
      }
}

TEST_CASE("memory: each rank holds what theory says, to the padding of buckets") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int ranks : {2, 4}) {
      auto narrow = static_cast<double>(size_of(dtype));
      bool master = dtype != DType::f32;
      for (int zero_stage : {0, 1, 2, 3}) {
        Job job{.ranks = ranks,
                .zero_stage = zero_stage,
                .micro_batches = 1,
                .steps = 2,
                .bucket_size = 0,
                .layers = 6,
                .width = 64,
                .dtype = dtype};
        INFO(zero::text(job));
        Outcome o = train(job);
        double share = zero_stage == 0 ? 1 : 1.0 / ranks;
        double values = zero_stage == 3 ? narrow * share : narrow, masters = master ? 4 * share : 0;
        double gradients = zero_stage >= 2 ? 4 * share : 4;
        auto n = static_cast<double>(o.numel),
             most = static_cast<double>(padded(o.numel, o, ranks));
        for (MemoryBreakdown held : o.held) {
          auto within = [&](MemoryUse use, double per_parameter) {
            auto bytes = static_cast<double>(held[use]);
            CHECK(bytes >= 0.8 * n * per_parameter);  // shards end in padding on the last rank
            CHECK(bytes <= most * per_parameter * 1.02 + 64 * 256);
          };
          within(MemoryUse::parameters, values + masters);
          within(MemoryUse::gradients, gradients);
          within(MemoryUse::optimizer, 8 * share);
        }
      }
    }
}

TEST_CASE("memory: the peak of a step falls with every stage") {
  size_t before = 0;
  for (int zero_stage : {0, 1, 2, 3}) {
    Job job{.ranks = 4,
            .zero_stage = zero_stage,
            .recompute = true,
            .micro_batches = 1,
            .steps = 2,
            .bucket_size = 9000,
            .layers = 8,
            .width = 48};
    size_t peak = 0;
    for (size_t bytes : train(job).peak) peak = std::max(peak, bytes);
    if (zero_stage > 0)
      CHECK_MESSAGE(peak < before, "zero ", zero_stage, ": ", peak, " after ", before);
    before = peak;
  }
}

/// Models that need Model::parts(): pairs of blocks in turn, one MLP for all blocks with norms of
/// their own, and parts that are created in another order than they compute.
const std::vector<Job> kDeclaring = {
    {.norms = 2, .mlps = 2, .declared = true, .micro_batches = 1, .layers = 4},
    {.spare = true, .mlps = 1, .declared = true, .micro_batches = 1, .layers = 4},
    {.backwards = true, .declared = true, .micro_batches = 1, .layers = 4},
    {.norms = 3, .mlps = 2, .backwards = true, .declared = true, .micro_batches = 1, .layers = 5}};

TEST_CASE("blocks that share parameters or are created in another order: the same bits") {
  for (Job job : kDeclaring) {
    Outcome plain = train(job);
    Job one = job;
    one.ranks = 1, one.micro_batches = 2, one.declared = false;
    Outcome alone = train(one);
    CHECK(distance(plain.gradients, alone.gradients) < 1e-4);
    CHECK(std::fabs(plain.losses.back() - alone.losses.back()) < 1e-5);
    for (int zero_stage : {0, 1, 2, 3})
      for (bool overlap : {false, true}) {
        job.zero_stage = zero_stage, job.overlap = job.recompute = overlap, job.stages = false;
        INFO(zero::text(job));
        CHECK(same(train(job), plain));
        job.stages = true;
        if (zero_stage == 3) CHECK(same(train(job), plain));
      }
  }
}

TEST_CASE("blocks that share parameters: sums of several micro-batches with and without overlap") {
  for (Job job : kDeclaring)
    for (int zero_stage : {0, 1, 2, 3}) {
      job.micro_batches = 3, job.zero_stage = zero_stage, job.overlap = false;
      Outcome plain = train(job);
      job.overlap = true;
      INFO(zero::text(job));
      CHECK(same(train(job), plain));
    }
}

TEST_CASE("parts that a model declares without need change no bit") {
  for (int zero_stage : {0, 1, 2, 3}) {
    Job job{.zero_stage = zero_stage, .overlap = true};
    Outcome plain = train(job);
    job.declared = true;
    INFO(zero::text(job));
    CHECK(same(train(job), plain));
  }
}

TEST_CASE("blocks that share parameters and do not declare it: an error with names and remedies") {
  auto throws = [](const Job& job, std::initializer_list<const char*> parts) {
    INFO(zero::text(job));
    std::string what, hint;
    try {
      train(job);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      what = error.message(), hint = error.hint();
    }
    for (const char* part : parts) CHECK_MESSAGE(what.find(part) != what.npos, part, " in ", what);
    CHECK_MESSAGE(hint.find("ddp.overlap_grad_reduce=false") != hint.npos, hint);
    CHECK_MESSAGE(hint.find("Model::parts()") != hint.npos, hint);
  };
  Job pairs = kDeclaring[0], backwards = kDeclaring[2];
  pairs.declared = backwards.declared = false;
  CHECK(train(pairs).losses.size() == 3);
  CHECK(train(backwards).losses.size() == 3);
  for (int zero_stage : {0, 1}) {
    pairs.zero_stage = backwards.zero_stage = zero_stage;
    pairs.overlap = backwards.overlap = true;
    throws(pairs, {"'layers.1.mlp.", "' of part 1 gets a gradient in 0B0 after B(0), but Reduce(1",
                   " has started, as ddp.overlap_grad_reduce=true wants; "});
    throws(backwards,
           {"'layers.2.mlp.", "' of part 2 gets a gradient in 0B0 after B(3), but Reduce(2"});
  }
  for (bool overlap : {false, true}) {
    pairs.zero_stage = backwards.zero_stage = 2;
    pairs.overlap = backwards.overlap = overlap;
    throws(pairs, {"'layers.1.mlp.", "' of part 1 gets a gradient in 0B0 after B(0), but Reduce(1",
                   " has started, as dist.zero 2 and 3 want; "});
    throws(backwards,
           {"'layers.2.mlp.", "' of part 2 gets a gradient in 0B0 after B(3), but Reduce(2"});
    pairs.zero_stage = backwards.zero_stage = 3;
    throws(pairs, {"'layers.0.norm.", "' of part 0 is read in 0F0 after F(1), where dist.zero=3 "});
    // With overlap, the next part is gathered in advance.
    throws(backwards, {overlap ? "'layers.2.norm." : "'layers.1.norm.",
                       overlap ? "' of part 2 is read in 0F0 after F(0), where dist.zero=3 "
                               : "' of part 1 is read in 0F0 after F(0), where dist.zero=3 "});
  }
}

}  // namespace
}  // namespace mtrain
