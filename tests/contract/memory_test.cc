// Memory over training steps on the pooled backend: nothing leaks, and after the first step the
// system is asked for nothing.
#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::contract {
namespace {

struct Weights {
  std::vector<std::shared_ptr<Leaf>> leaves;
  std::vector<Tensor> values;
  Tensor use(ExecutionContext& ctx, const Shape& shape, DType dtype) {
    leaves.push_back(std::make_shared<Leaf>());
    leaves.back()->grad = ctx.zeros(shape, DType::f32);
    values.push_back(
        make(ctx, random_values(shape.numel(), cat("w", values.size()), 0.1), shape, dtype));
    return at(values.size() - 1);
  }
  Tensor at(size_t i) const {
    Tensor t = values[i];
    t.set_node(leaves[i]);
    return t;
  }
};

constexpr int64_t kPlanTokens = 33, kPlanWidth = 48, kPlanVocab = 65;
const HeadLayout kLayout{4, 2, 12};

// A language model of one block that uses every op.
struct Net {
  Weights weights;
  RopeTable table;
  Net(ExecutionContext& ctx, DType dtype) {
    const std::vector<Shape> shapes = {{kPlanVocab, kPlanWidth},
                                       {kPlanWidth},
                                       {kLayout.width(), kPlanWidth},
                                       {kPlanWidth, kPlanWidth},
                                       {kPlanWidth},
                                       {kPlanWidth},
                                       {96, kPlanWidth},
                                       {96, kPlanWidth},
                                       {kPlanWidth, 96},
                                       {kPlanVocab, kPlanWidth},
                                       {96}};
    for (const Shape& shape : shapes) weights.use(ctx, shape, dtype);
    table = {make(ctx, Values(kPlanTokens * 4, 0.6), {kPlanTokens, 4}, DType::f32),
             make(ctx, Values(kPlanTokens * 4, 0.8), {kPlanTokens, 4}, DType::f32)};
  }
  Tensor block(const Tensor& x, const Tensor& positions, const SequenceBounds& bounds) const {
    Tensor qkv =
        rope(linear(rms_norm(x, weights.at(1), 1e-5f), weights.at(2)), kLayout, table, positions);
    Tensor h =
        add(x, dropout(linear(attention(qkv, kLayout, bounds, {0.3f}), weights.at(3)), 0.1f, 1));
    Tensor n = layer_norm(h, weights.at(4), weights.at(5), 1e-5f);
    Tensor gated = silu_mul(linear(n, weights.at(6)),
                            gelu(linear(n, weights.at(7), weights.at(10)), GeluKind::tanh));
    return add(h, linear(gated, weights.at(8)));
  }
  Tensor loss(ExecutionContext& ctx, bool replay) const {
    std::vector<int32_t> ids, positions;
    for (int32_t t = 0; t < kPlanTokens; ++t)
      ids.push_back(t % static_cast<int32_t>(kPlanVocab)), positions.push_back(t % 20);
    auto bounds =
        std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 20, kPlanTokens});
    Tensor places = make_ids(ctx, positions), x = embedding(weights.at(0), make_ids(ctx, ids));
    auto body = [this, places, bounds](const Tensor& in) { return block(in, places, bounds); };
    x = replay ? recompute(body, x) : body(x);
    return cross_entropy(linear(x, weights.at(9)), make_ids(ctx, ids), kPlanVocab - 3);
  }
};

TEST_CASE(
    "memory: after the first step the system is asked for nothing and nothing is left behind") {
  auto backend = make_cpu_backend(2);
  for (DType dtype : kDTypes)
    for (bool replay : {false, true}) {
      INFO(name(dtype), replay ? ", recomputed" : "");
      ExecutionContext ctx(*backend);
      Net net(ctx, dtype);
      size_t resting = ctx.memory().in_use();
      uint64_t asked = 0;
      size_t peak = 0;
      for (int step = 0; step < 4; ++step) {
        for (auto& leaf : net.weights.leaves) leaf->has_grad = false;
        for (int micro = 0; micro < 2; ++micro) {
          Tensor loss = net.loss(ctx, replay);
          backward(loss, make(ctx, Values(kPlanTokens, 1.0), {kPlanTokens}, DType::f32));
        }
        CHECK(ctx.memory().in_use() == resting);
        if (step == 0) asked = ctx.memory().system_allocations(), peak = ctx.memory().peak();
      }
      CHECK(ctx.memory().system_allocations() == asked);
      CHECK(ctx.memory().peak() == peak);
      CHECK(ctx.memory().reserved() >= peak);
    }
}

TEST_CASE("memory: a forward pass that is thrown away leaves nothing, tape or not") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  Net net(ctx, DType::bf16);
  size_t resting = ctx.memory().in_use();
  { Tensor dropped = net.loss(ctx, false); }
  CHECK(ctx.memory().in_use() == resting);
  {
    GradMode off(ctx, false);
    Tensor dropped = net.loss(ctx, true);
  }
  CHECK(ctx.memory().in_use() == resting);
}

TEST_CASE(
    "memory: what is somebody else's is counted with the run's, and goes when its last tensor does "
    "or gives it back") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  const CachingAllocator& memory = ctx.memory();
  size_t used = memory.in_use(), reserved = memory.reserved();
  int freed = 0;
  auto block = [&] {
    return std::shared_ptr<void>(std::aligned_alloc(64, 4096),
                                 [&](void* data) { ++freed, std::free(data); });
  };
  MemoryScope use(ctx.memory(), MemoryUse::gradients);
  {
    Tensor whole(ctx, {1024}, DType::f32, block()), part = whole.slice(0, 0, 10);
    CHECK(memory.in_use() == used + 4096);
    CHECK(memory.reserved() == reserved + 4096);
    CHECK(memory.held()[MemoryUse::gradients] == 4096);
    CHECK(memory.system_allocations() == 0);
    ctx.fill_zero(whole);
    whole = {};
    CHECK(freed == 0);
    CHECK(values_of(part) == Values(10, 0.0));
  }
  CHECK(freed == 1);
  CHECK(memory.in_use() == used);
  CHECK(memory.reserved() == reserved);
  Tensor given_back(ctx, {1024}, DType::f32, block()), taker = ctx.empty({1024}, DType::f32);
  given_back.release_memory();
  CHECK(freed == 2);
  CHECK_FALSE(given_back.resident());
  Tensor from(ctx, {1024}, DType::f32, block());
  taker.release_memory();
  taker.storage()->adopt(*from.storage());
  from = {};
  CHECK(freed == 2);
  taker = {};
  CHECK(freed == 3);
  CHECK(memory.in_use() == used);
}

TEST_CASE("memory: the whole net between guards, and its gradients at any thread count") {
  for (DType dtype : kDTypes) {
    std::vector<std::vector<Values>> grads;
    for (int threads : {1, 2, 5}) {
      Fixture lab(threads);
      Net net(lab.context(), dtype);
      backward(net.loss(lab.context(), false),
               make(lab.context(), Values(kPlanTokens, 1.0), {kPlanTokens}, DType::f32));
      grads.emplace_back();
      for (auto& leaf : net.weights.leaves) grads.back().push_back(values_of(leaf->grad));
    }
    CHECK(grads[0] == grads[1]);
    CHECK(grads[0] == grads[2]);
  }
}

// A backend that has little memory left.
class Full final : public Backend {
 public:
  explicit Full(Backend& inner, size_t free = 4096) : inner_(inner), free_(free) {}
  std::string_view name() const override { return "full"; }
  Probe probe() const override { return inner_.probe(); }
  void* allocate(Device device, size_t bytes) override {
    if (bytes > free_) throw Error(ErrorClass::config, "no memory");
    free_ -= bytes;
    return inner_.allocate(device, bytes);
  }
  void deallocate(Device device, void* data, size_t bytes) override {
    free_ += bytes;
    inner_.deallocate(device, data, bytes);
  }
  std::unique_ptr<Stream> stream(Device device) override { return inner_.stream(device); }
  const KernelTable& kernels() const override { return inner_.kernels(); }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    inner_.copy(stream, to, from, bytes);
  }
  void fill_zero(Stream& stream, void* data, size_t bytes) override {
    inner_.fill_zero(stream, data, bytes);
  }

 private:
  Backend& inner_;
  size_t free_;
};

TEST_CASE("memory: an allocation that fails is not counted as in use") {
  auto backend = make_cpu_backend(1);
  Full full(*backend);
  ExecutionContext ctx(full);
  CHECK_THROWS_AS(ctx.empty({1000, 1000}, DType::f32), Error);
  CHECK(ctx.memory().in_use() == 0);
  CHECK(ctx.memory().reserved() == 0);
  CHECK(ctx.memory().system_allocations() == 0);
  Tensor quantized = ctx.zeros({10}, DType::f32);
  CHECK(ctx.memory().in_use() == 256);
}

TEST_CASE("memory: blocks count under the use they were taken for, whenever they go back") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  Tensor batch = ctx.empty({64}, DType::f32), kept;
  {
    MemoryScope use(ctx.memory(), MemoryUse::activations);
    kept = ctx.empty({256}, DType::f32);
    MemoryScope inner(ctx.memory(), MemoryUse::backward);
    Tensor passing = ctx.empty({512}, DType::f32);
  }
  CHECK(ctx.memory().use() == MemoryUse::other);
  MemoryBreakdown most = ctx.memory().at_peak();
  CHECK(most.total() == ctx.memory().peak());
  CHECK(most[MemoryUse::other] == 256);
  CHECK(most[MemoryUse::activations] == 1024);
  CHECK(most[MemoryUse::backward] == 2048);
  CHECK(most[MemoryUse::optimizer] == 0);
  CHECK(most.text() == "backward 2.0 KiB, activations 1.0 KiB, other 256 B");
  kept = {};
  { Tensor again = ctx.empty({1000}, DType::f32); }  // 256 + 4096 is more than before
  CHECK(ctx.memory().at_peak()[MemoryUse::activations] == 0);
  CHECK(ctx.memory().at_peak()[MemoryUse::other] == 256 + 4096);
}

TEST_CASE(
    "memory: what is cached is given back before an allocation fails, and the failure says what is "
    "held") {
  auto backend = make_cpu_backend(1);
  Full full(*backend, 10000);
  ExecutionContext ctx(full);
  MemoryScope use(ctx.memory(), MemoryUse::optimizer);
  Tensor held = ctx.empty({512}, DType::f32);
  { Tensor cached = ctx.empty({1024}, DType::f32); }
  CHECK(ctx.memory().reserved() == 2048 + 4096);
  Tensor large = ctx.empty({1500}, DType::f32);  // 6144 B fit only without the cached 4096
  CHECK(ctx.memory().reserved() == 2048 + 6144);
  try {
    Tensor more = ctx.empty({1024}, DType::f32);
    FAIL("there is no room for it");
  } catch (const Error& error) {
    CHECK(error.message() == "no memory for optimizer; held so far: optimizer 8.0 KiB");
    CHECK(error.hint().find("model.layers") != std::string::npos);
    CHECK(error.hint().find("train.micro_batch_size") != std::string::npos);
  }
  CHECK(ctx.memory().in_use() == 2048 + 6144);
}

TEST_CASE("memory: sizes that vary from step to step do not fill the cache") {
  auto backend = make_cpu_backend(1);
  const auto reserved = [&](bool limited) {
    ExecutionContext ctx(*backend);
    RngStream random(1, "sizes");
    size_t most = 0;
    for (uint64_t step = 0; step < 200; ++step) {
      const auto count = static_cast<int64_t>(1000 + 3000 * random.uniform(step));
      const Tensor kept = ctx.empty({8000}, DType::f32);
      const Tensor one = ctx.empty({count}, DType::f32),
                   other = ctx.empty({5000 - count}, DType::f32);
      most = std::max(most, ctx.memory().in_use());
      if (limited && step == 1) ctx.memory().limit_cache();
    }
    const size_t held = ctx.memory().peak_reserved();
    CHECK(ctx.memory().peak() == most);
    return static_cast<double>(held) / static_cast<double>(most);
  };
  CHECK(reserved(false) > 2);
  CHECK(reserved(true) < 1.5);
}

TEST_CASE("memory: a limited cache asks for nothing while the sizes stay the same") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  const auto step = [&] {
    for (const int64_t count : {1000, 3000, 9000, 20000}) ctx.empty({count}, DType::f32);
  };
  step();
  ctx.memory().limit_cache();
  const uint64_t before = ctx.memory().system_allocations();
  for (int i = 0; i < 5; ++i) step();
  CHECK(ctx.memory().system_allocations() == before);
}

}  // namespace
}  // namespace mtrain::contract
