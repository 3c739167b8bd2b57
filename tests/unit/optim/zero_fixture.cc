#include "zero_fixture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "mtrain/comm/thread_world.h"
#include "mtrain/kernel/quantize.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/precision.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/pipeline/sharding_actions.h"

namespace mtrain::zero {
namespace {

using namespace contract;

constexpr int64_t kVocab = 37, kLength = 6;

// Blocks of norm and MLP between tied embeddings.
class Small final : public Model {
 public:
  Small(const Scope& s, const Job& job)
      : embed_(s / "embed", {"vocab", kVocab}, {"embed", job.width}, 0.5f),
        norm_(s / "norm", Norm::Kind::layer, {"embed", job.width}, 1e-5f),
        norms_(static_cast<size_t>(job.norms > 0 ? job.norms : job.layers)),
        mlps_(static_cast<size_t>(job.mlps > 0 ? job.mlps : job.layers)),
        blocks_(static_cast<size_t>(job.layers)),
        recompute_(job.recompute) {
    if (job.backwards) add_ends(s, job);
    for (size_t i = 0; i < blocks_; ++i) add_block(s, job, job.backwards ? blocks_ - 1 - i : i);
    if (!job.backwards) add_ends(s, job);
  }
  Tensor forward(const ModelInput& input, Tensor) override {
    Tensor x = norm_(embed_(input.tokens_T));
    for (size_t i = 0; i < blocks_; ++i) {
      auto block = [this, i](const Tensor& h) {
        return (*mlps_[i % mlps_.size()])((*norms_[i % norms_.size()])(h), h);
      };
      x = recompute_ ? recompute(block, x) : block(x);
    }
    return (*head_)((*out_)(x), input);
  }
  double flops_per_token(int64_t) const override { return 0; }
  std::vector<ComputedPart> parts() const override {
    std::vector<ComputedPart> all = {{"embed", {"norm"}}};
    for (size_t i = 0; i < blocks_; ++i)
      all.push_back(
          {cat("layers.", i),
           {cat("layers.", i % norms_.size(), ".norm"), cat("layers.", i % mlps_.size(), ".mlp")}});
    all.push_back({"out", {"embed"}});
    return all;
  }

 private:
  void add_block(const Scope& s, const Job& job, size_t i) {
    Scope block = s / "layers" / static_cast<int64_t>(i);
    if (i < norms_.size())
      norms_[i] =
          std::make_unique<Norm>(block / "norm", Norm::Kind::layer, Dim{"embed", job.width}, 1e-5f);
    if (i < mlps_.size())
      mlps_[i] = std::make_unique<GatedMlp>(block / "mlp", Dim{"embed", job.width},
                                            Dim{"mlp", 2 * job.width + 1}, 0.3f, 0.3f);
    if (job.spare) block.param("spare", {{"embed", job.width}}, Init::normal(1), true);
  }
  void add_ends(const Scope& s, const Job& job) {
    out_.emplace(s / "out", Norm::Kind::layer, Dim{"embed", job.width}, 1e-5f);
    head_.emplace(s / "head", Dim{"vocab", kVocab}, Dim{"embed", job.width}, kVocab, &embed_.weight,
                  0.5f);
  }

  Embedding embed_;
  Norm norm_;
  std::vector<std::unique_ptr<Norm>> norms_;
  std::vector<std::unique_ptr<GatedMlp>> mlps_;
  size_t blocks_;
  std::optional<Norm> out_;
  std::optional<LmHead> head_;
  bool recompute_;
};

class Adam final : public Optimizer {
 public:
  explicit Adam(bool elementwise) : elementwise_(elementwise) {}
  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    return {"m", "v"};
  }
  UpdateScope scope(const ParamInfo&) const override {
    return elementwise_ ? UpdateScope::elements : UpdateScope::whole_matrices;
  }
  void update(const ParamUpdate& u) override {
    if (!elementwise_) CHECK(u.master.shape() == u.param.shape);
    auto step = static_cast<double>(u.step);
    u.ctx.kernels().adamw(u.ctx.stream(),
                          {.param = u.master.data<float>(),
                           .grad = u.grad.data<float>(),
                           .exp_avg = u.state[0].data<float>(),
                           .exp_avg_sq = u.state[1].data<float>(),
                           .value = u.value.defined() ? u.value.raw() : nullptr,
                           .count = u.master.numel(),
                           .lr = static_cast<float>(u.lr),
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-8f,
                           .weight_decay = static_cast<float>(u.weight_decay),
                           .correction1 = static_cast<float>(1 - std::pow(0.9, step)),
                           .correction2 = static_cast<float>(1 - std::pow(0.95, step)),
                           .grad_scale = u.grad_scale,
                           .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
  }

 private:
  bool elementwise_;
};

struct Groups {
  Groups(Communicator& world, int hsdp) : all(&world) {
    if (hsdp == 1) return;
    int shard = world.size() / hsdp, rank = world.rank();
    shards = world.split(rank / shard, rank, "shards");
    copies = world.split(rank % shard, rank, "copies");
  }
  ReplicaGroup group() const { return {.all = all, .shards = shards.get(), .outer = copies.get()}; }
  Communicator* all;
  std::unique_ptr<Communicator> shards, copies;
};

PrecisionOptions precision_options(const Job& job) {
  bool delayed = job.fp8 == Job::Fp8::delayed;
  return {.quantized = job.fp8 != Job::Fp8::none,
          .rule = {.recipe = delayed ? QuantRecipe::delayed : QuantRecipe::tensorwise,
                   .headroom = delayed ? 2.0f : 1.0f},
          .layers = job.layers,
          .first_plain = 1,
          .amax_history = 2};
}

/// What weights are worth whose values are codes of their own largest value's scale.
Values in_codes(const Values& masters, DType dtype) {
  Values out = round_to(masters, dtype);
  double largest = 0;
  for (double v : out) largest = std::max(largest, std::fabs(v));
  QuantScaling s = tensor_scaling(static_cast<float>(largest), E4M3::kMax, 1);
  for (double& v : out)
    v = encode_format<E4M3>(round_to_format<E4M3>(static_cast<float>(v) * s.encode));
  return out;
}

/// One rank.
struct ZeroRank {
  ZeroRank(const Job& given, Communicator& world)
      : job(given),
        groups(world, job.hsdp),
        precision(precision_options(job)),
        settings{.ctx = lab.context(),
                 .parameters = list,
                 .dtype = job.dtype,
                 .defer_memory = job.deferred && job.zero_stage > 0,
                 .precision = &precision},
        model(Scope(settings), job),
        parts(job.declared ? declared_parts(list.all(), 0, model.parts(), 1)
                           : stage_parts(list.all(), 0, true, true, 1)),
        optimizer(!job.whole),
        buckets(lab.context(), list,
                {.dense = groups.group(),
                 .expert = {},
                 .zero_stage = job.zero_stage,
                 .outer_zero = job.outer_zero,
                 .bucket_size = job.bucket_size,
                 .pad_buckets = job.padded,
                 .overlap_gather = job.overlap,
                 .codes = job.codes}),
        state(lab.context(), buckets, optimizer),
        reducer(buckets, {.in_order = job.in_order, .overlap = job.overlap, .wire = job.wire}),
        interpreter(lab.context(), {.stages = {&model}, .steps = steps()}, list) {
    interpreter.set_gradient_hooks(
        {[this] { reducer.micro_batch_done(); }, [this] { reducer.reduce_scatter(); },
         [this] { reducer.finish_step(); }, [this](size_t bucket) { reducer.start(bucket); },
         reducer.buckets()});
    interpreter.set_param_hooks({[this](int64_t stage) { buckets.gather_stage(stage); },
                                 [this](int64_t stage) { buckets.release_stage(stage); },
                                 {[this](PartId part) { buckets.gather_part(part); },
                                  [this](PartId part) { buckets.release_part(part); }}});
    buckets.set_use_hooks({[this](PartId part) { interpreter.before_read(part); },
                           [this](PartId part, const std::string& parameter) {
                             interpreter.before_write(part, parameter);
                           },
                           [this](PartId part, const std::string& parameter) {
                             interpreter.refuse_read(part, parameter);
                           }});
  }
  InnerStepRules steps() const {
    return {.stages = {parts},
            .sharded = job.zero_stage >= 3,
            .ahead = job.overlap,
            .recompute = job.recompute};
  }
  // The batch of the whole job is the same for any number of ranks and micro-batches, and for all
  // steps.
  ModelInput input(int64_t first, int64_t rows) {
    std::vector<int32_t> tokens, positions, targets, bounds = {0};
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t t = 0; t < kLength; ++t) {
        tokens.push_back(static_cast<int32_t>((r * 31 + t * 7) % kVocab));
        positions.push_back(static_cast<int32_t>(t));
        targets.push_back(static_cast<int32_t>((r * 13 + t * 5 + 1) % kVocab));
      }
      bounds.push_back(static_cast<int32_t>(tokens.size()));
    }
    return {make_ids(lab.context(), tokens), make_ids(lab.context(), positions),
            make_ids(lab.context(), targets), std::make_shared<const std::vector<int32_t>>(bounds)};
  }
  void step(int64_t number, Outcome& out, bool speaks) {
    constexpr int64_t kRows = 24;
    int64_t rows = kRows / (job.ranks * job.micro_batches),
            base = groups.all->rank() * rows * job.micro_batches;
    Schedule schedule = with_sharding_actions(
        one_f_one_b({1, job.micro_batches}),
        {.resident_stages = job.stages ? 1 : 0, .reduce_scatter = job.zero_stage >= 2});
    const Program& program = schedule[0];
    reducer.begin_step();
    auto input_of = [&](int64_t m) { return input(base + m * rows, rows); };
    CommCounters before = counters();
    StepLoss loss = interpreter.run(program, input_of, kRows * kLength, 1);
    CommCounters reduced = counters();
    double total = reducer.sum(loss.micro_batches), norm = state.grad_norm(1, groups.all);
    precision.end_step(lab.context(), true, *groups.all, nullptr);
    CommCounters ended = counters();
    state.update(
        {.lr = 0.02, .weight_decay = 0.1, .clip = job.clip, .grad_norm = norm, .step = number + 1});
    if (!speaks) return;
    out.losses.push_back(total / (kRows * kLength));
    out.norms.push_back(norm);
    for (size_t k = 0; k < before.by_kind.size(); ++k)
      out.bytes.by_kind[k].bytes_sent =
          (reduced.by_kind[k].bytes_sent - before.by_kind[k].bytes_sent) +
          (counters().by_kind[k].bytes_sent - ended.by_kind[k].bytes_sent);
  }
  CommCounters counters() const {
    CommCounters sum = groups.all->counters();
    for (const Communicator* c : {groups.shards.get(), groups.copies.get()})
      if (c)
        for (size_t k = 0; k < sum.by_kind.size(); ++k)
          sum.by_kind[k].bytes_sent += c->counters().by_kind[k].bytes_sent;
    return sum;
  }
  void collect(Outcome& out) {
    for (const auto& entry : state.entries()) {
      if (!entry.is_primary) continue;
      auto put = [&](Values& whole, const Tensor& tensor) {
        whole.resize(static_cast<size_t>(entry.parameter->numel()), std::nan(""));
        Values part = values_of(tensor);
        auto begin = whole.begin() + entry.begin;
        CHECK(std::all_of(begin, begin + entry.count,
                          [](double v) { return std::isnan(v); }));  // counted once
        std::copy(part.begin(), part.end(), begin);
      };
      put(out.masters[entry.parameter->name], entry.master);
      put(out.gradients[entry.parameter->name], entry.grad);
    }
  }
  void check_values(const Outcome& out) {
    GradMode off(lab.context(), false);
    buckets.gather_stage(0);
    for (const auto& p : list.all()) {
      Tensor value = p.use();
      const Values& masters = out.masters.at(p.name);
      bool codes = job.codes && p.quantized && job.zero_stage > 0;
      CHECK(value.dtype() == (codes ? DType::u8 : job.dtype));
      if (!codes) {
        CHECK_MESSAGE(values_of(value) == round_to(masters, job.dtype), p.name);
      } else if (job.fp8 == Job::Fp8::tensorwise) {
        std::vector<uint8_t> held(masters.size());
        lab.context().download(value, held.data());
        CHECK_MESSAGE(Values(held.begin(), held.end()) == in_codes(masters, job.dtype), p.name);
      }
    }
    buckets.release_values();
  }
  /// As a checkpoint is loaded: masters are written, and values follow.
  void write_masters(Outcome& out) {
    auto tripled = [](double v) { return static_cast<double>(static_cast<float>(3 * v)); };
    for (auto& [name, values] : out.masters)
      std::transform(values.begin(), values.end(), values.begin(), tripled);
    for (const auto& entry : state.entries()) {
      Values values = values_of(entry.master);
      std::vector<float> changed;
      for (double v : values) changed.push_back(static_cast<float>(tripled(v)));
      lab.context().upload(entry.master, changed.data());
    }
    state.masters_changed();
  }

  Job job;
  Groups groups;
  Fixture lab{1};
  ParamList list;
  PrecisionPlan precision;
  BuildSettings settings;
  Small model;
  StageParts parts;
  Adam optimizer;
  ParamBuckets buckets;
  OptimizerState state;
  GradReducer reducer;
  Interpreter interpreter;
};

}  // namespace

Outcome train(const Job& job) {
  Outcome out;
  out.held.resize(static_cast<size_t>(job.ranks)), out.peak.resize(static_cast<size_t>(job.ranks));
  std::mutex mutex;
  run_ranks(job.ranks, [&](Communicator& world) {
    ZeroRank rank(job, world);
    bool speaks = world.rank() == 0;
    for (int s = 0; s < job.steps; ++s) rank.step(s, out, speaks);
    auto r = static_cast<size_t>(world.rank());
    out.held[r] = rank.lab.context().memory().held();
    out.peak[r] = rank.lab.context().memory().peak();
    if (speaks) {
      out.numel = rank.list.numel(),
      out.buckets = static_cast<int64_t>(rank.buckets.buckets().size());
      for (const ParamBucket& b : rank.buckets.buckets())
        if (b.plan.quantized)
          out.quantized += b.plan.size, out.matrices += static_cast<int64_t>(b.plan.items.size());
    }
    {
      std::lock_guard lock(mutex);
      rank.collect(out);
    }
    world.barrier();
    rank.check_values(out);
    Outcome written = out;
    rank.write_masters(written);
    rank.check_values(written);
    world.barrier();
  });
  return out;
}

std::string text(const Job& j) {
  return cat("ranks ", j.ranks, " zero ", j.zero_stage, " hsdp ", j.hsdp,
             j.outer_zero ? " outer" : "", j.overlap ? " overlap" : "",
             j.in_order ? " in_order" : "", j.recompute ? " recompute" : "",
             j.whole ? " whole" : "", j.stages ? " stages" : "", j.deferred ? "" : " adopted",
             " micro-batches ", j.micro_batches, " bucket ", j.bucket_size, " ", name(j.dtype),
             j.fp8 == Job::Fp8::none      ? ""
             : j.fp8 == Job::Fp8::delayed ? " delayed"
                                          : " tensorwise",
             j.codes ? " codes" : "", j.padded ? " padded" : "", " norms ", j.norms, " mlps ",
             j.mlps, j.backwards ? " backwards" : "", j.declared ? " declared" : "",
             j.wire == GradientWire::fp32 ? "" : " bf16 gradients");
}

bool same(const Outcome& a, const Outcome& b) {
  return a.masters == b.masters && a.losses == b.losses && a.norms.size() == b.norms.size() &&
         std::equal(a.norms.begin(), a.norms.end(), b.norms.begin(),
                    [](double x, double y) { return std::fabs(x - y) <= 1e-14 * std::fabs(y); });
}

}  // namespace mtrain::zero
