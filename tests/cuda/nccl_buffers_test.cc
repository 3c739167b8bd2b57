// Gradients and values in registered memory, over fakes of NCCL and of the device: what ranks add
// up and gather, and what becomes of the memory.
#include <doctest/doctest.h>

#include "communicator.h"
#include "contract/comm/fixture.h"
#include "fake_nccl.h"
#include "fake_streams.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/scope.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/tensor/execution_context.h"

using namespace mtrain;
using namespace mtrain::testing;
using contract::values;

namespace {

constexpr int64_t kFirst = 700, kSecond = 33, kThird = 500;

struct Layout {
  int ranks = 2, zero = 0, copies = 1;
  bool registered = true, in_order = false;
  DType dtype = DType::f32;
  const nccl::Library& library = fake_nccl();
};

/// What each rank has after two steps: gradients of what it updates, and values.
using Outcome = std::vector<std::vector<float>>;

std::vector<float> downloaded(ExecutionContext& ctx, const Tensor& tensor) {
  std::vector<char> bytes(static_cast<size_t>(tensor.numel()) * size_of(tensor.dtype()));
  ctx.download(tensor, bytes.data());
  std::vector<float> out;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (tensor.dtype() == DType::f32)
      out.push_back(reinterpret_cast<const float*>(bytes.data())[i]);
    else
      out.push_back(static_cast<float>(reinterpret_cast<const uint16_t*>(bytes.data())[i]));
  }
  return out;
}

void check_zeros(ExecutionContext& ctx, ParamBuckets& buckets) {
  for (const ParamBucket& b : buckets.buckets()) {
    const std::vector<float> zeros(static_cast<size_t>(b.plan.size));
    if (!b.gradients_sharded()) CHECK(downloaded(ctx, b.grads) == zeros);
    if (b.plan.zero_stage > 0 && !b.values_sharded()) CHECK(downloaded(ctx, b.values) == zeros);
  }
}

/// Adds up the gradients of a step over the ranks. Returns those of this rank's parts.
std::vector<float> reduced(GradReducer& reducer, ParamBuckets& buckets, ParamList& list, int rank,
                           uint64_t step) {
  reducer.begin_step();
  list.clear_gradients();
  for (uint64_t p = 0; p < 3; ++p) {
    Parameter& parameter = list.all()[p];
    buckets.before_gradient(parameter.leaf->number);
    parameter.main_grad.context().upload(
        parameter.main_grad, values<float>(rank, parameter.numel(), 10 * step + p).data());
    parameter.leaf->has_grad = true;
  }
  reducer.micro_batch_done();
  for (size_t b = 0; b < reducer.buckets().size(); ++b) reducer.start(b);
  if (buckets.options().zero_stage >= 2) reducer.reduce_scatter();
  reducer.finish_step();
  std::vector<float> out;
  for (const ParamSlice& slice : buckets.slices()) {
    std::vector<float> got = downloaded(slice.grad.context(), slice.grad);
    out.insert(out.end(), got.begin(), got.end());
  }
  return out;
}

std::vector<float> two_steps(Communicator& host, const Layout& layout) {
  std::shared_ptr<Communicator> kept(&host, [](Communicator*) {});
  nccl::NcclCommunicator world(
      std::make_shared<nccl::Job>(layout.library,
                                  std::make_unique<FakeCalls>(cat("gpu", host.rank())), kept,
                                  std::chrono::minutes(10)),
      kept);
  int inner = layout.ranks / layout.copies;
  std::unique_ptr<Communicator> shards, outer;
  if (layout.copies > 1) {
    shards = world.split(world.rank() / inner, world.rank(), "shards");
    outer = world.split(world.rank() % inner, world.rank(), "copies");
  }
  FakeDeviceBackend backend;
  ExecutionContext ctx(backend);
  ParamList list;
  BuildSettings settings{.ctx = ctx,
                         .parameters = list,
                         .dtype = layout.dtype,
                         .initialise = false,
                         .defer_memory = layout.zero > 0};
  Scope root(settings);
  for (auto [name, size] :
       {std::pair("a", kFirst), std::pair("b", kSecond), std::pair("c", kThird)})
    root.param(name, {{"x", size}}, Init::zeros(), true);
  if (layout.zero == 0)
    for (Parameter& p : list.all()) ctx.fill_zero(p.value);
  size_t before = ctx.memory().in_use();
  std::vector<float> out;
  {
    ShardingOptions options{.dense = {.all = &world, .shards = shards.get(), .outer = outer.get()},
                            .zero_stage = layout.zero,
                            .bucket_size = 600,
                            .registered = layout.registered,
                            .initialise = false};
    ParamBuckets buckets(ctx, list, options);
    CHECK(buckets.buckets().size() > 1);
    CHECK(ctx.memory().in_use() > before);
    check_zeros(ctx, buckets);
    GradReducer reducer(buckets, {.in_order = layout.in_order});
    for (uint64_t step = 0; step < 2; ++step) {
      const std::vector<float> sums = reduced(reducer, buckets, list, world.rank(), step);
      out.insert(out.end(), sums.begin(), sums.end());
      for (ParamBucket& b : buckets.buckets()) {  // an update of the own shard
        if (b.plan.zero_stage == 0 || b.values_sharded()) continue;
        Tensor own = b.values.slice(0, b.shard_begin, b.shard_end);
        std::vector<float> mine = values<float>(world.rank() % inner, own.numel(), 100 + step);
        ctx.upload(own, mine.data());
      }
      buckets.sync_values();
    }
    for (Parameter& p : list.all()) {
      if (layout.zero >= 3) continue;
      std::vector<float> got = downloaded(ctx, p.value);
      out.insert(out.end(), got.begin(), got.end());
    }
  }
  list.all().clear();
  ctx.stream().synchronize();
  return out;
}

Outcome train(const Layout& layout) {
  Outcome all(static_cast<size_t>(layout.ranks));
  run_ranks(layout.ranks, [&](Communicator& host) {
    all[static_cast<size_t>(host.rank())] = two_steps(host, layout);
  });
  return all;
}

}  // namespace

TEST_CASE(
    "registered or not, ranks have the same sums and values, and what was registered is given back "
    "in order") {
  // groups: how many a block goes through; blocks: of gradients, and from zero 1 on of values
  struct Case {
    Layout layout;
    int registrations, calls;  // of each rank; calls: all of them registered
  };
  for (const Case& c : std::vector<Case>{{{.ranks = 2, .zero = 0}, 1, 4},
                                         {{.ranks = 3, .zero = 0}, 1, 4},
                                         {{.ranks = 2, .zero = 1}, 2, 8},
                                         {{.ranks = 2, .zero = 1, .dtype = DType::bf16}, 2, 8},
                                         {{.ranks = 4, .zero = 1, .copies = 2}, 3, 12},
                                         {{.ranks = 2, .zero = 2}, 1, 4},
                                         {{.ranks = 2, .zero = 3}, 0, 0}}) {
    Layout plain = c.layout;
    plain.registered = false;
    INFO("zero " << c.layout.zero << ", " << c.layout.ranks << " ranks, " << c.layout.copies
                 << " copies");
    take_fake_registrations();
    Outcome without = train(plain);
    CHECK(take_fake_registrations().made == 0);
    Outcome with = train(c.layout);
    CHECK(with == without);
    FakeRegistrations seen = take_fake_registrations();
    CHECK(seen.fault == "");
    CHECK(seen.made == c.registrations * c.layout.ranks);
    CHECK(seen.ended == seen.made);
    CHECK(seen.calls == c.calls * c.layout.ranks);
    CHECK(fake_other_memory().blocks() == 0);
  }
}

TEST_CASE("in the order of the global batch, too") {
  Layout layout{.ranks = 2, .in_order = true}, plain = layout;
  plain.registered = false;
  take_fake_registrations();
  CHECK(train(layout) == train(plain));
  CHECK(take_fake_registrations().fault == "");
}

TEST_CASE("an NCCL that cannot register memory, and a rank that is alone, go without") {
  Layout old{.ranks = 2, .zero = 1, .library = old_fake_nccl()},
      plain{.ranks = 2, .zero = 1, .registered = false};
  take_fake_registrations();
  CHECK(train(old) == train(plain));
  Layout alone{.ranks = 1, .zero = 1}, alone_plain{.ranks = 1, .zero = 1, .registered = false};
  CHECK(train(alone) == train(alone_plain));
  CHECK(take_fake_registrations().made == 0);
  CHECK(fake_other_memory().blocks() == 0);
}

TEST_CASE(
    "a registration that ends before the ranks are connected, or after NCCL was ended, is no use "
    "and no harm") {
  take_fake_registrations();
  run_ranks(2, [&](Communicator& host) {
    std::shared_ptr<Communicator> kept(&host, [](Communicator*) {});
    FakeDeviceBackend backend;
    ExecutionContext ctx(backend);
    nccl::NcclCommunicator comm(
        std::make_shared<nccl::Job>(fake_nccl(),
                                    std::make_unique<FakeCalls>(cat("gpu", host.rank())), kept,
                                    std::chrono::minutes(10)),
        kept);
    auto memory = comm.network_memory(4096), other = comm.network_memory(4096);
    REQUIRE(memory != nullptr);
    auto never = comm.register_memory(memory.get(), 4096);
    never.reset();
    auto stays = comm.register_memory(other.get(), 4096);
    Tensor x(ctx, {1024}, DType::f32, other);
    ctx.upload(x, std::vector<float>(1024, 1.0f).data());
    comm.all_reduce(x);
    std::vector<float> got(1024);
    ctx.download(x, got.data());
    CHECK(got[0] == 2);
    auto late = comm.register_memory(memory.get(), 4096);  // with the next call
    comm.all_reduce(x);
    ctx.stream().synchronize();
    host.barrier();
    if (host.rank() == 0) comm.abort("enough");
    while (host.rank() == 1) {
      try {
        comm.all_reduce(x);
      } catch (const Error&) {
        break;
      }
    }
    stays.reset();
    late.reset();
  });
  FakeRegistrations seen = take_fake_registrations();
  CHECK(seen.made == 4);
  CHECK(seen.fault == "");
  CHECK(fake_other_memory().blocks() == 0);
}
