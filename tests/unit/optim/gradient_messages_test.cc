// Sums of gradients over ranks with messages in fp32 and bf16, against their plain definition.
#include "mtrain/optim/gradient_messages.h"

#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain {
namespace {

using namespace contract;

Values of_rank(int rank, int64_t count) { return random_values(count, cat("gradient ", rank)); }

/// The sum in float, in the order of ranks, of what travels.
Values plain_sum(int ranks, int64_t count, GradientWire wire) {
  const DType sent = wire == GradientWire::fp32 || ranks == 1 ? DType::f32 : DType::bf16;
  Values sum = round_to(round_to(of_rank(0, count), DType::f32), sent);
  for (int rank = 1; rank < ranks; ++rank) {
    Values part = round_to(round_to(of_rank(rank, count), DType::f32), sent);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = static_cast<double>(static_cast<float>(sum[i]) + static_cast<float>(part[i]));
  }
  return sum;
}

constexpr GradientWire kWires[] = {GradientWire::fp32, GradientWire::bf16_sum_fp32,
                                   GradientWire::bf16_sum_bf16};

}  // namespace

TEST_CASE("gradient messages: an all-reduce of any size, rounded to what travels") {
  for (int ranks : {1, 2, 3, 4})
    for (int64_t count : {1, 7, 96, 1200})
      for (GradientWire wire : kWires) {
        const bool narrow = wire != GradientWire::fp32 && ranks > 1;
        const Values want =
            round_to(plain_sum(ranks, count, wire), narrow ? DType::bf16 : DType::f32);
        run_ranks(ranks, [&](Communicator& world) {
          Fixture lab(1);
          GradientMessages messages(lab.context(), wire);
          Tensor grads = make(lab.context(), of_rank(world.rank(), count), {count}, DType::f32);
          GradientSum sum = messages.start_all_reduce(world, grads);
          sum.progress();
          sum.wait();
          MT_CHECK(values_of(grads) == want, "another sum of ", count, " elements over ", ranks,
                   " ranks");
        });
      }
}

TEST_CASE("gradient messages: a reduce-scatter; bf16 that is summed in fp32 is not rounded again") {
  for (int ranks : {1, 2, 3, 4})
    for (GradientWire wire : kWires) {
      const int64_t part = 96, count = part * ranks;
      const bool rounded = wire == GradientWire::bf16_sum_bf16 && ranks > 1;
      const Values want =
          round_to(plain_sum(ranks, count, wire), rounded ? DType::bf16 : DType::f32);
      run_ranks(ranks, [&](Communicator& world) {
        Fixture lab(1);
        GradientMessages messages(lab.context(), wire);
        Tensor grads = make(lab.context(), of_rank(world.rank(), count), {count}, DType::f32);
        const int64_t begin = part * world.rank();
        Tensor own = grads.slice(0, begin, begin + part);
        messages.start_reduce_scatter(world, grads, own).wait();
        MT_CHECK(values_of(own) == Values(want.begin() + begin, want.begin() + begin + part),
                 "another sum over ", ranks, " ranks");
      });
    }
}

TEST_CASE("gradient messages: bf16 sends half of what fp32 does") {
  constexpr int kRanks = 4;
  constexpr int64_t kCount = 1024;
  for (GradientWire wire : kWires)
    run_ranks(kRanks, [&](Communicator& world) {
      Fixture lab(1);
      GradientMessages messages(lab.context(), wire);
      Tensor grads = make(lab.context(), of_rank(world.rank(), kCount), {kCount}, DType::f32);
      const int64_t once = (kRanks - 1) * kCount * (wire == GradientWire::fp32 ? 4 : 2) / kRanks;
      auto sent = [&] { return world.counters().total().bytes_sent; };
      messages.start_all_reduce(world, grads).wait();
      MT_CHECK_EQ(sent(), 2 * once);
      messages.start_reduce_scatter(world, grads, grads.slice(0, 0, kCount / kRanks)).wait();
      MT_CHECK_EQ(sent(), 3 * once);
    });
}

TEST_CASE("gradient messages: a sum of a step that failed leaves the gradients alone") {
  run_ranks(2, [&](Communicator& world) {
    Fixture lab(1);
    GradientMessages messages(lab.context(), GradientWire::bf16_sum_fp32);
    Tensor grads = make(lab.context(), of_rank(0, 64), {64}, DType::f32);
    const Values before = values_of(grads);
    GradientSum sum = messages.start_all_reduce(world, grads);
    sum.abandon();
    sum.wait();
    MT_CHECK(values_of(grads) == before, "gradients have changed");
  });
}

}  // namespace mtrain
