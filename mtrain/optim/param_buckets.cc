#include "mtrain/optim/param_buckets.h"

#include <algorithm>
#include <exception>
#include <map>

#include "mtrain/base/log.h"

namespace mtrain {
namespace {

using Presence = ParamBucket::Presence;

// Also with zero 0, where nothing is sharded, so that the layout is the same in every stage.
int num_shards(const ReplicaGroup& group, const ShardingOptions& options) {
  return group.shard_group().size() * (options.outer_zero ? group.copies() : 1);
}

Tensor flat(const Tensor& t) { return t.view({t.numel()}); }

DType value_type(const ParamBucket& b) {
  return b.codes ? DType::u8 : b.plan.items[0].parameter->dtype;
}

// The number of elements of [lo, hi) in each of `parts` equal parts of the `size` elements from
// `begin`.
std::vector<int64_t> counts_in_parts(int64_t lo, int64_t hi, int64_t begin, int64_t size,
                                     int parts) {
  std::vector<int64_t> counts;
  int64_t part = size / parts;
  for (int i = 0; i < parts; ++i, begin += part)
    counts.push_back(std::max<int64_t>(0, std::min(hi, begin + part) - std::max(lo, begin)));
  return counts;
}

}  // namespace

std::vector<int64_t> ParamBucket::shard_counts(const BucketItem& item) const {
  return counts_in_parts(item.begin, item.end(), 0, plan.size, group.shard_group().size());
}

std::vector<int64_t> ParamBucket::copy_counts(const BucketItem& item) const {
  return counts_in_parts(item.begin, item.end(), shard_begin, shard_end - shard_begin,
                         update_sharded_over_copies() ? group.copies() : 1);
}

ParamBuckets::ParamBuckets(ExecutionContext& ctx, ParamList& parameters,
                           const ShardingOptions& options)
    : ctx_(ctx), parameters_(parameters), options_(options), network_(ctx) {
  MT_CHECK(options.dense.all, "data-parallel ranks without a group");
  if (!options_.expert.all) options_.expert = options_.dense;
  MT_CHECK(!options.outer_zero || options.zero_stage == 3,
           "copies share their state with zero 3 only, not ", options.zero_stage);
  DType computed = parameters.all().empty() ? DType::f32 : parameters.all().front().dtype;
  auto plans =
      plan_buckets(parameters.all(), {.zero_stage = options.zero_stage,
                                      .bucket_size = options.bucket_size,
                                      .dense_shards = num_shards(options_.dense, options_),
                                      .expert_shards = num_shards(options_.expert, options_),
                                      .pad = options.pad_buckets});
  for (BucketPlan& plan : plans) {
    const ReplicaGroup& group = plan.expert ? options_.expert : options_.dense;
    ParamBucket& bucket = buckets_.emplace_back();
    bucket.plan = std::move(plan), bucket.group = group;
    bucket.codes = options.codes && bucket.plan.quantized && bucket.plan.zero_stage > 0;
    set_shard_range(bucket);
  }
  if (options_.registered) open_network_memory();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    ParamBucket& bucket = buckets_[b];
    if (bucket.plan.zero_stage > 0) {
      allocate_values(bucket);
      adopt(bucket);
    }
    for (size_t i = 0; i < bucket.plan.items.size(); ++i) {
      Leaf& leaf = *bucket.plan.items[i].parameter->leaf;
      leaf.watch = this, leaf.number = static_cast<int64_t>(places_.size());
      places_.push_back({b, i});
    }
  }
  for (ParamBucket& bucket : buckets_) allocate_gradients(bucket);
  collect_codes(computed);
}

ParamBuckets::~ParamBuckets() {
  if (std::uncaught_exceptions() == 0) finish_all();
  for (Parameter& p : parameters_.all()) p.leaf->watch = nullptr;
}

void ParamBuckets::set_shard_range(ParamBucket& b) {
  b.shard_end = b.own_end = b.plan.size;
  if (b.plan.zero_stage == 0) return;
  const Communicator& shard_group = b.group.shard_group();
  int64_t shard = b.plan.size / shard_group.size();
  b.shard_begin = shard_group.rank() * shard, b.shard_end = b.shard_begin + shard;
  b.own_begin = b.shard_begin, b.own_end = b.shard_end;
  if (!options_.outer_zero || !b.values_sharded() || !b.group.outer) return;
  int64_t own = shard / b.group.outer->size();
  b.own_begin = b.shard_begin + b.group.outer->rank() * own, b.own_end = b.own_begin + own;
}

// Short-lived memory is not registered, because that would take longer than it saves.
void ParamBuckets::open_network_memory() {
  std::map<NetworkMemory::Use, size_t> bytes;
  std::map<NetworkMemory::Use, std::vector<Communicator*>> groups;
  for (const ParamBucket& b : buckets_) {
    NetworkMemory::Use grads{
        .expert = b.plan.expert, .values = false, .zero_stage = b.plan.zero_stage},
        values = grads;
    values.values = true;
    if (!b.gradients_sharded()) {
      bytes[grads] += NetworkMemory::bytes_of(b.plan.size, DType::f32);
      groups[grads] = {b.plan.zero_stage == 0 ? b.group.all : &b.group.shard_group()};
      if (b.plan.zero_stage > 0 && b.group.copies() > 1) groups[grads].push_back(b.group.outer);
    }
    if (b.plan.zero_stage == 0 || b.values_sharded()) continue;
    bytes[values] += NetworkMemory::bytes_of(b.plan.size, value_type(b));
    groups[values] = {&b.group.shard_group()};
  }
  for (const auto& [use, size] : bytes) network_.open(use, size, groups[use]);
}

Tensor ParamBuckets::lasting(const ParamBucket& b, NetworkMemory::Use use, DType dtype) {
  use.expert = b.plan.expert, use.zero_stage = b.plan.zero_stage;
  return network_.zeros(use, b.plan.size, dtype);
}

void ParamBuckets::allocate_gradients(ParamBucket& b) {
  MemoryScope use(ctx_.memory(), MemoryUse::gradients);
  b.grads = lasting(b, {.values = false}, DType::f32);
  for (BucketItem& item : b.plan.items) {
    Parameter& p = *item.parameter;
    p.main_grad = b.grads.slice(0, item.begin, item.end()).view(p.local);
    p.leaf->grad = p.main_grad;
  }
  if (!b.gradients_sharded()) return;
  b.grads.release_memory();
  b.shard_grads = ctx_.zeros({b.shard_end - b.shard_begin}, DType::f32);
}

void ParamBuckets::allocate_values(ParamBucket& b) {
  MemoryScope use(ctx_.memory(), MemoryUse::parameters);
  DType dtype = value_type(b);
  int64_t own = b.own_end - b.own_begin;
  b.values = lasting(b, {.values = true}, dtype);
  Tensor holder = b.values;
  int64_t holder_begin = 0;
  if (b.values_sharded()) {
    b.values.release_memory();
    b.presence = Presence::absent;
    b.shard_values = holder = ctx_.zeros({b.shard_end - b.shard_begin}, dtype);
    holder_begin = b.shard_begin;
  }
  if (b.codes)
    b.presence = Presence::absent,
    b.shard_stale = true;  // updated at the first use, on all ranks together
  else
    fill(b, holder, holder_begin);
  if (dtype == DType::f32) {
    b.masters = holder.slice(0, b.own_begin - holder_begin, b.own_end - holder_begin);
  } else {
    b.masters = ctx_.zeros({own}, DType::f32);
    fill(b, b.masters, b.own_begin);
  }
}

// `to` contains the bucket's elements from `begin`.
void ParamBuckets::fill(const ParamBucket& b, const Tensor& to, int64_t begin) {
  for (const BucketItem& item : b.plan.items) {
    const Parameter& p = *item.parameter;
    int64_t lo = std::max(item.begin, begin), hi = std::min(item.end(), begin + to.numel());
    if (lo >= hi) continue;
    Tensor part = to.slice(0, lo - begin, hi - begin);
    if (p.master.defined()) {
      ctx_.copy(part, flat(p.master).slice(0, lo - item.begin, hi - item.begin));
    } else if (options_.initialise) {
      std::vector<float> values(static_cast<size_t>(hi - lo));
      p.init_values(ctx_.seed(), lo - item.begin, values);
      ctx_.copy(part, ctx_.from_host<float>(values, {hi - lo}));
    }
  }
}

// Frees the parameters' own memory.
void ParamBuckets::adopt(ParamBucket& b) {
  for (BucketItem& item : b.plan.items) {
    Parameter& p = *item.parameter;
    p.value = b.values.slice(0, item.begin, item.end()).view(p.local);
    p.dtype = b.values.dtype();
    p.master = p.dtype == DType::f32 ? p.value : Tensor();
  }
}

/// The part that this rank updates of weights that are stored as codes.
void ParamBuckets::collect_codes(DType computed) {
  std::vector<WeightShard> weights;
  for (const ParamBucket& b : buckets_) {
    if (!b.codes) continue;
    Communicator& holders = options_.outer_zero ? *b.group.all : b.group.shard_group();
    const Tensor& codes = b.values_sharded() ? b.shard_values : b.values;
    int64_t codes_begin = b.values_sharded() ? b.shard_begin : 0;
    for (const BucketItem& item : b.plan.items) {
      WeightShard& w =
          weights.emplace_back(WeightShard{.parameter = item.parameter, .holders = &holders});
      int64_t lo = std::max(item.begin, b.own_begin), hi = std::min(item.end(), b.own_end);
      if (lo >= hi) continue;
      w.begin = lo - item.begin;
      w.master = b.masters.slice(0, lo - b.own_begin, hi - b.own_begin);
      w.codes = codes.slice(0, lo - codes_begin, hi - codes_begin);
    }
  }
  if (!weights.empty()) coded_.emplace(ctx_, std::move(weights), computed);
}

void ParamBuckets::make_codes() {
  if (coded_) coded_->make();
  codes_stale_ = false;
}

std::vector<ParamSlice> ParamBuckets::slices() const {
  std::vector<ParamSlice> slices;
  for (const ParamBucket& b : buckets_)
    for (const BucketItem& item : b.plan.items) {
      Parameter& p = *item.parameter;
      int64_t lo = std::max(item.begin, b.own_begin), hi = std::min(item.end(), b.own_end);
      if (lo >= hi) continue;
      ParamSlice slice{.parameter = &p,
                       .begin = lo - item.begin,
                       .count = hi - lo,
                       .master = {},
                       .grad = {},
                       .value = {}};
      auto part = [&](const Tensor& t, int64_t t_begin) {
        Tensor piece = t.slice(0, lo - t_begin, hi - t_begin);
        return slice.count == p.numel() ? piece.view(p.local) : piece;
      };
      bool narrow = p.dtype != DType::f32 && !b.codes;
      slice.grad = b.gradients_sharded() ? part(b.shard_grads, b.shard_begin) : part(b.grads, 0);
      if (b.plan.zero_stage == 0) {
        slice.master = p.master;
        if (narrow) slice.value = p.value;
        slice.is_primary = b.group.all->rank() == 0;
      } else {
        slice.master = part(b.masters, b.own_begin);
        if (narrow)
          slice.value =
              b.values_sharded() ? part(b.shard_values, b.shard_begin) : part(b.values, 0);
        slice.is_primary =
            b.update_sharded_over_copies() || !b.group.outer || b.group.outer->rank() == 0;
      }
      slices.push_back(std::move(slice));
    }
  return slices;
}

void ParamBuckets::sync_values() {
  release_values();
  for (ParamBucket& b : buckets_) finish_gather(b);  // for buckets that were not used
  make_codes();
  for (ParamBucket& b : buckets_) {
    if (b.plan.zero_stage == 0) continue;
    if (b.values_sharded()) {
      b.shard_stale = true;
      continue;
    }
    b.presence = Presence::absent;
    start_gather(b);
  }
  if (options_.overlap_gather) return;
  for (ParamBucket& b : buckets_)
    if (b.presence == Presence::coming) finish_gather(b);
}

void ParamBuckets::masters_changed() {
  release_values();
  codes_stale_ = true;
  for (const ParamSlice& slice : slices())
    if (slice.value.defined()) ctx_.copy(slice.value, slice.master);
  for (ParamBucket& b : buckets_) {
    if (b.plan.zero_stage == 0) continue;
    if (b.presence == Presence::coming) finish_gather(b);
    if (!b.values_sharded()) b.presence = Presence::absent;
    b.shard_stale = true;
  }
}

void ParamBuckets::start_gather(ParamBucket& b) {
  if (b.presence != Presence::absent) return;
  if (b.codes && codes_stale_) make_codes();
  b.presence = Presence::coming;
  if (!b.values_sharded()) {
    b.gather = b.group.shard_group().start_all_gather(b.values.slice(0, b.shard_begin, b.shard_end),
                                                      b.values);
    return;
  }
  if (b.shard_stale && b.update_sharded_over_copies()) {
    Tensor own = b.shard_values.slice(0, b.own_begin - b.shard_begin, b.own_end - b.shard_begin);
    b.group.outer->all_gather(own, b.shard_values);
  }
  b.shard_stale = false;
  b.values.restore_memory();
  b.gather = b.group.shard_group().start_all_gather(b.shard_values, b.values);
}

void ParamBuckets::finish_gather(ParamBucket& b) {
  if (b.presence != Presence::coming) return;
  b.gather.wait();
  b.gather = {};
  b.presence = Presence::here;
}

// Completes transfers whose values were not used, because dropping a call would end the job.
void ParamBuckets::finish_all() noexcept {
  try {
    for (ParamBucket& b : buckets_) finish_gather(b);
  } catch (const std::exception& error) {
    log_warn("parameters of the last step did not arrive: ", error.what());
  }
}

void ParamBuckets::drop(ParamBucket& b) {
  if (b.presence == Presence::absent) return;
  finish_gather(b);
  b.values.release_memory();
  b.presence = Presence::absent;
}

void ParamBuckets::release_values() {
  for (ParamBucket& b : buckets_)
    if (b.values_sharded()) drop(b);
}

template <class Matches>
void ParamBuckets::gather_if(const Matches& matches) {
  auto each = [&](auto&& call) {
    for (ParamBucket& b : buckets_)
      if (b.values_sharded() && matches(b.plan.part)) call(b);
  };
  each([&](ParamBucket& b) { start_gather(b); });
  if (!options_.overlap_gather) each([&](ParamBucket& b) { finish_gather(b); });
}

template <class Matches>
void ParamBuckets::release_if(const Matches& matches) {
  for (ParamBucket& b : buckets_)
    if (b.values_sharded() && matches(b.plan.part)) drop(b);
}

void ParamBuckets::gather_part(PartId part) {
  gather_if([&](PartId other) { return other == part; });
}

void ParamBuckets::release_part(PartId part) {
  release_if([&](PartId other) { return other == part; });
}

void ParamBuckets::gather_stage(int64_t stage) {
  gather_if([&](PartId part) { return part.stage == stage; });
}

void ParamBuckets::release_stage(int64_t stage) {
  release_if([&](PartId part) { return part.stage == stage; });
}

void ParamBuckets::before_value(int64_t leaf) {
  ParamBucket& b = buckets_[place_of(leaf).bucket];
  const BucketItem& item = b.plan.items[place_of(leaf).item];
  if (use_hooks_.read) use_hooks_.read(item.part);
  if (b.values_sharded()) {
    if (b.presence == Presence::absent && use_hooks_.refuse)
      use_hooks_.refuse(item.part, item.parameter->name);
    MT_CHECK(b.presence != Presence::absent, "'", item.parameter->name,
             "' is read, but its values are not gathered");
  } else if (b.presence == Presence::absent) {
    start_gather(b);
  }
  finish_gather(b);
}

void ParamBuckets::before_gradient(int64_t leaf) {
  ParamBucket& b = buckets_[place_of(leaf).bucket];
  const BucketItem& item = b.plan.items[place_of(leaf).item];
  if (use_hooks_.write) use_hooks_.write(item.part, item.parameter->name);
  if (gradients_) gradients_->before_gradient(leaf);
  b.grads.restore_memory();
}

std::vector<ParamSlice> whole_slices(ParamList& parameters) {
  std::vector<ParamSlice> slices;
  for (Parameter& p : parameters.all())
    if (p.trained)
      slices.push_back({.parameter = &p,
                        .begin = 0,
                        .count = p.numel(),
                        .master = p.master,
                        .grad = p.main_grad,
                        .value = p.dtype == DType::f32 ? Tensor() : p.value});
  return slices;
}

}  // namespace mtrain
