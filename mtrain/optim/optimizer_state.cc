#include "mtrain/optim/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "mtrain/base/plugin_call.h"
#include "mtrain/optim/whole_matrices.h"

namespace mtrain {

Optimizer::~Optimizer() = default;

ParamInfo info_of(const Parameter& p) {
  return {.name = p.name,
          .role = p.role,
          .dims = p.dims,
          .shape = p.global,
          .matrices = p.matrices,
          .tensor_dim = p.tensor_dim,
          .tensor_ranks = axis_size(p.tensor_axis)};
}

std::vector<std::string> state_names_of(Optimizer& optimizer, const ParamInfo& param) {
  return call_plugin(optimizer, "state_names()", [&] { return optimizer.state_names(param); });
}

struct OptimizerState::Plan {
  explicit Plan(const Parameter& p) : parameter(p), info(info_of(p)) {}
  const Parameter& parameter;
  ParamInfo info;
  std::vector<std::string> names;  // of its state
  UpdateScope scope = UpdateScope::elements;
  Entry* entry = nullptr;             // null: this rank has none of its elements
  std::vector<ParamBox> boxes;        // for UpdateScope::elements: boxes of the entry
  std::optional<TensorParts> tensor;  // for UpdateScope::whole_matrices
  const ParamBucket* bucket = nullptr;
  const BucketItem* item = nullptr;
  /// The elements are sharded over ranks.
  bool shared() const {
    return bucket && bucket->plan.zero_stage > 0 &&
           (bucket->group.shard_group().size() > 1 || bucket->update_sharded_over_copies());
  }
};

struct OptimizerState::WholePlan {
  std::vector<const Plan*> parameters;  // with the same states
  std::optional<ShardRound> shards;     // absent: this rank has all elements of a parameter
  std::vector<std::vector<Tensor>> matrix_state;  // of own(), by matrix
  /// The parameter that this rank updates; null: none of them.
  const Plan* own() const {
    if (!shards) return parameters[0];
    return shards->has_own() ? parameters[shards->own()] : nullptr;
  }
};

OptimizerState::OptimizerState(ExecutionContext& ctx, ParamList& parameters, Optimizer& optimizer)
    : OptimizerState(ctx, whole_slices(parameters), nullptr, optimizer) {}

OptimizerState::OptimizerState(ExecutionContext& ctx, ParamBuckets& buckets, Optimizer& optimizer)
    : OptimizerState(ctx, buckets.slices(), &buckets, optimizer) {}

OptimizerState::~OptimizerState() = default;

OptimizerState::OptimizerState(ExecutionContext& ctx, std::vector<ParamSlice> slices,
                               ParamBuckets* buckets, Optimizer& optimizer)
    : ctx_(ctx), buckets_(buckets), optimizer_(optimizer) {
  MemoryScope use(ctx.memory(), MemoryUse::optimizer);
  for (ParamSlice& slice : slices) {
    std::vector<std::string> names = state_names_of(optimizer, info_of(*slice.parameter));
    Entry entry{std::move(slice), std::move(names), {}};
    for (size_t i = 0; i < entry.names.size(); ++i)
      entry.state.push_back(ctx.zeros(entry.master.shape(), DType::f32));
    auto& counted = counted_.emplace_back();
    for (auto [begin, end] : entry.parameter->primary_ranges()) {
      int64_t lo = std::max(begin, entry.begin), hi = std::min(end, entry.begin + entry.count);
      if (lo < hi) counted.emplace_back(lo - entry.begin, hi - entry.begin);
    }
    entries_.push_back(std::move(entry));
  }
  make_plans();
  share_whole();
  for (WholePlan& whole : whole_) allocate_matrix_state(whole);
}

void OptimizerState::make_plans() {
  std::map<const Parameter*, Entry*> entry_of;
  for (Entry& entry : entries_) entry_of[entry.parameter] = &entry;
  auto add = [&](const Parameter& p) -> Plan& {
    Plan& plan = *plans_.emplace_back(std::make_unique<Plan>(p));
    plan.names = state_names_of(optimizer_, plan.info);
    plan.scope = call_plugin(optimizer_, "scope()", [&] { return optimizer_.scope(plan.info); });
    auto found = entry_of.find(&p);
    if (found != entry_of.end()) plan.entry = found->second;
    if (plan.scope == UpdateScope::whole_matrices)
      plan.tensor.emplace(p);
    else if (plan.entry)
      plan.boxes = p.boxes_of(plan.entry->begin, plan.entry->begin + plan.entry->count);
    return plan;
  };
  if (!buckets_)
    for (Entry& entry : entries_) add(*entry.parameter);
  else
    for (const ParamBucket& bucket : buckets_->buckets())
      for (const BucketItem& item : bucket.plan.items) {
        Plan& plan = add(*item.parameter);
        plan.bucket = &bucket, plan.item = &item;
      }
}

// Parameters of similar size and the same states are updated at the same time, each by a different
// rank. They are ordered by their global sizes, which are the same on all ranks along every axis.
void OptimizerState::share_whole() {
  // By the names of states, and whether they are experts, and sharded by replicas.
  std::map<std::tuple<std::vector<std::string>, bool, bool>, std::vector<const Plan*>> shared;
  for (const auto& plan : plans_) {
    if (plan->scope != UpdateScope::whole_matrices) continue;
    if (plan->shared())
      shared[{plan->names, plan->bucket->plan.expert, plan->bucket->update_sharded_over_copies()}]
          .push_back(plan.get());
    else
      whole_.push_back({{plan.get()}, std::nullopt});
  }
  for (auto& [kind, plans] : shared) {
    std::stable_sort(plans.begin(), plans.end(), [](const Plan* a, const Plan* b) {
      return a->parameter.global.numel() > b->parameter.global.numel();
    });
    for (size_t first = 0; first < plans.size();) {
      const ReplicaGroup& group = plans[first]->bucket->group;
      const bool copies = plans[first]->bucket->update_sharded_over_copies();
      WholePlan whole;
      ShardCounts counts, copy_counts;
      for (int i = 0; i < group.shard_group().size() && first < plans.size(); ++i, ++first) {
        const Plan& plan = *whole.parameters.emplace_back(plans[first]);
        counts.push_back(plan.bucket->shard_counts(*plan.item));
        copy_counts.push_back(plan.bucket->copy_counts(*plan.item));
      }
      whole.shards.emplace(group.shard_group(), std::move(counts), copies ? group.outer : nullptr,
                           std::move(copy_counts));
      whole_.push_back(std::move(whole));
    }
  }
}

// All tensor-parallel ranks of the parameter and all copies of its shards update it alike, and each
// has the state. One of them saves it.
void OptimizerState::allocate_matrix_state(WholePlan& whole) {
  const Plan* own = whole.own();
  if (!own) return;
  const Parameter& p = own->parameter;
  const Communicator* outer = whole.shards ? own->bucket->group.outer : nullptr;
  const bool first_copy = whole.shards ? !outer || outer->rank() == 0 : own->entry->is_primary;
  const bool is_primary =
      p.is_primary && first_copy && (!p.tensor_axis || p.tensor_axis->index() == 0);
  for (const LogicalMatrix& matrix : own->tensor->matrices()) {
    std::vector<Tensor>& tensors = whole.matrix_state.emplace_back();
    const std::vector<MatrixState> states = call_plugin(
        optimizer_, "matrix_state()", [&] { return optimizer_.matrix_state(own->info, matrix); });
    const std::string of = cat(p.name, ".", matrix.name, matrix.name.empty() ? "" : ".");
    for (const MatrixState& state : states) {
      if (std::ranges::find(own->names, state.name) != own->names.end())
        throw Error(ErrorClass::plugin,
                    cat("the optimizer names '", state.name,
                        "' in both state_names() and matrix_state(); rename one of them"));
      tensors.push_back(ctx_.zeros(state.shape, DType::f32));
      matrix_entries_.push_back({of + state.name, tensors.back(), is_primary});
    }
  }
}

// The square of a float is exact in double, so sharding affects only the last bits of a double.
double OptimizerState::norm_of(Tensor ParamSlice::*tensor, Communicator* world) const {
  std::deque<double> parts;  // a device delivers them at the next wait, one wait for all
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (world && !entries_[i].is_primary) continue;
    const float* elements = (entries_[i].*tensor).data<float>();
    for (auto [begin, end] : counted_[i])
      ctx_.kernels().squared_norm(
          ctx_.stream(),
          {.x = elements + begin, .count = end - begin, .out = &parts.emplace_back(0)});
  }
  ctx_.stream().synchronize();
  double squares = std::accumulate(parts.begin(), parts.end(), 0.0);
  if (world) squares = world->all_reduce_value(squares);
  return std::sqrt(squares);
}

double OptimizerState::grad_norm(double grad_scale, Communicator* world) const {
  return norm_of(&ParamSlice::grad, world) * grad_scale;
}
double OptimizerState::params_norm(Communicator* world) const {
  return norm_of(&ParamSlice::master, world);
}

double clip_factor(double grad_norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (grad_norm + 1e-6)) : 1.0;
}

void OptimizerState::update(const Step& step) {
  MemoryScope use(ctx_.memory(), MemoryUse::optimizer);
  for (const auto& plan : plans_)
    if (plan->scope == UpdateScope::elements && plan->entry) update_elements(*plan, step);
  for (const WholePlan& whole : whole_) update_whole(whole, &step);
  if (buckets_) buckets_->sync_values();
}

void OptimizerState::rehearse_update() {
  MemoryScope use(ctx_.memory(), MemoryUse::optimizer);
  for (const WholePlan& whole : whole_) update_whole(whole, nullptr);
}

// Matrices are updated one after the other, so the memory of one is free again for the next.
void OptimizerState::rehearse_workspace(const Plan& plan) {
  for (const LogicalMatrix& matrix : plan.tensor->matrices()) {
    std::vector<Tensor> held;
    for (const Shape& shape : optimizer_.workspace(plan.info, matrix))
      held.push_back(ctx_.empty(shape, DType::f32));
  }
}

void OptimizerState::update_elements(const Plan& plan, const Step& step) {
  std::vector<Tensor> tensors = {plan.entry->master, plan.entry->grad};
  tensors.insert(tensors.end(), plan.entry->state.begin(), plan.entry->state.end());
  call(plan, step, tensors, {}, plan.entry->value);
}

// `tensors`: master, gradient, state.
void OptimizerState::call(const Plan& plan, const Step& step, std::span<const Tensor> tensors,
                          std::span<const std::vector<Tensor>> matrix_state, const Tensor& value) {
  const bool whole = plan.scope == UpdateScope::whole_matrices;
  const Parameter& p = plan.parameter;
  const ParamRate rate =
      step.rates ? step.rates(p) : ParamRate{step.lr, p.decay ? step.weight_decay : 0};
  const ParamUpdate update{
      .ctx = ctx_,
      .param = plan.info,
      .scope = plan.scope,
      .matrices = whole ? plan.tensor->matrices() : std::span<const LogicalMatrix>(),
      .boxes = whole ? plan.tensor->boxes() : plan.boxes,
      .local = whole ? plan.tensor->shape() : p.local,
      .begin = whole ? 0 : plan.entry->begin,
      .master = tensors[0],
      .grad = tensors[1],
      .state = tensors.subspan(2),
      .matrix_state = matrix_state,
      .value = value,
      .lr = rate.lr,
      .weight_decay = rate.weight_decay,
      .grad_scale = static_cast<float>(step.grad_scale * clip_factor(step.grad_norm, step.clip)),
      .step = step.step};
  call_plugin(optimizer_, "update()", [&] { optimizer_.update(update); });
}

// Without a step, the plugin is not called, and masters and state return unchanged.
void OptimizerState::update_whole(const WholePlan& whole, const Step* step) {
  constexpr size_t kGrad = 1;
  const size_t kinds = 2 + whole.parameters[0]->names.size();
  const auto& shards = whole.shards;
  auto held_by = [&](const Entry* entry, size_t kind) {
    if (!entry) return Tensor();
    return kind == 0 ? entry->master : kind == kGrad ? entry->grad : entry->state[kind - 2];
  };
  auto held = [&](size_t kind) {
    std::vector<Tensor> flat;
    for (const Plan* plan : whole.parameters) {
      Tensor part = held_by(plan->entry, kind);
      flat.push_back(part.defined() ? part.view({part.numel()}) : part);
    }
    return flat;
  };
  const Plan* own = whole.own();
  std::vector<Tensor> local,
      together;  // of the parameter that this rank updates: its part; gathered over tp
  for (size_t kind = 0; kind < kinds; ++kind) {
    local.push_back(shards ? shards->to_owner(ctx_, held(kind)) : held_by(own->entry, kind));
    if (own) {
      local[kind] = local[kind].view(own->parameter.local);
      together.push_back(own->tensor->whole(local[kind]));
    }
  }
  const bool in_place = !shards && !own->tensor->sharded();
  if (own && step)
    call(*own, *step, together, whole.matrix_state, in_place ? own->entry->value : Tensor());
  else if (own)
    rehearse_workspace(*own);
  for (size_t kind = 0; kind < kinds; ++kind) {
    if (kind == kGrad || in_place) continue;
    if (own && step) own->tensor->keep_part(together[kind], local[kind]);
    if (shards) shards->from_owner(ctx_, local[kind], held(kind));
  }
  if (in_place || !step) return;
  for (const Plan* plan : whole.parameters)
    if (plan->entry && plan->entry->value.defined())
      ctx_.copy(plan->entry->value, plan->entry->master);
}

void OptimizerState::masters_changed() {
  if (buckets_) return buckets_->masters_changed();
  for (Entry& entry : entries_)
    if (entry.value.defined()) ctx_.copy(entry.value, entry.master);
}

}  // namespace mtrain
