#include "mtrain/nn/parameter.h"

#include <algorithm>
#include <vector>

#include "mtrain/nn/adapter.h"
#include "mtrain/nn/precision.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

void write_frozen(Parameter& p, std::span<const float> own) {
  constexpr int64_t kElements = 1 << 20;  // of a piece
  ExecutionContext& ctx = p.value.context();
  const Tensor flat = p.value.view({p.numel()});
  for (int64_t begin = 0; begin < p.numel(); begin += kElements) {
    const int64_t n = std::min(kElements, p.numel() - begin);
    const auto piece = own.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    ctx.copy(flat.slice(0, begin, begin + n), ctx.from_host<float>(piece, {n}));
  }
}

Parameter& ParamList::add(Parameter parameter) {
  MT_CHECK(places_.try_emplace(parameter.name, parameters_.size()).second, "two parameters named ",
           parameter.name);
  parameter.stage = stage_;
  return parameters_.emplace_back(std::move(parameter));
}

StateBuffer& ParamList::add_buffer(StateBuffer buffer) {
  MT_CHECK(buffer_places_.try_emplace(buffer.name, buffers_.size()).second, "two buffers named ",
           buffer.name);
  return buffers_.emplace_back(std::move(buffer));
}

Parameter* ParamList::find(std::string_view name) {
  auto place = places_.find(std::string(name));
  return place == places_.end() ? nullptr : &parameters_[place->second];
}

std::vector<ParamBox> Parameter::boxes() const { return shard_boxes(global, shards, is_primary); }

std::vector<ParamBox> shard_boxes(const Shape& global, std::span<const DimShard> shards,
                                  bool is_primary) {
  std::vector<ParamBox> boxes = {{whole_box(global), whole_box(global), is_primary}};
  for (const DimShard& shard : shards) {
    std::vector<ParamBox> parts;
    for (const ParamBox& box : boxes)
      for (const ShardPiece& piece : shard.pieces) {
        if (piece.size == 0) continue;
        ParamBox part = box;
        part.global.offset[shard.dim] = piece.global, part.local.offset[shard.dim] = piece.local;
        part.global.extent[shard.dim] = part.local.extent[shard.dim] = piece.size;
        part.is_primary = box.is_primary && piece.is_primary;
        parts.push_back(part);
      }
    boxes = std::move(parts);
  }
  return boxes;
}

std::vector<ParamBox> Parameter::boxes_of(int64_t begin, int64_t end) const {
  if (begin == 0 && end == numel()) return boxes();
  std::vector<Box> parts = boxes_of_range(local, begin, end);
  std::vector<ParamBox> common;
  for (const ParamBox& box : boxes())
    for (const Box& part : parts)
      if (auto both = intersect(box.local, part))
        common.push_back(
            {moved(*both, box.local.offset, box.global.offset), *both, box.is_primary});
  return common;
}

std::vector<float> Parameter::own_part(std::span<const float> whole) const {
  std::vector<float> own(static_cast<size_t>(numel()));
  for (const ParamBox& box : boxes())
    for_each_run(box.global, global, box.local, local,
                 [&](int64_t from, int64_t to, int64_t count) {
                   std::copy_n(whole.data() + from, count, own.data() + to);
                 });
  return own;
}

std::vector<std::pair<int64_t, int64_t>> Parameter::primary_ranges() const {
  std::vector<std::pair<int64_t, int64_t>> runs, ranges;
  for (const ParamBox& box : boxes())
    if (box.is_primary)
      for_each_run(box.global, global, box.local, local,
                   [&](int64_t, int64_t at, int64_t count) { runs.emplace_back(at, at + count); });
  std::sort(runs.begin(), runs.end());
  for (const auto& range : runs) {
    if (!ranges.empty() && ranges.back().second == range.first)
      ranges.back().second = range.second;
    else
      ranges.push_back(range);
  }
  return ranges;
}

void Parameter::init_values(uint64_t seed, int64_t begin, std::span<float> values) const {
  int64_t end = begin + static_cast<int64_t>(values.size());
  for (const ParamBox& box : boxes())
    for_each_run(
        box.global, global, box.local, local, [&](int64_t from, int64_t at, int64_t count) {
          int64_t lo = std::max(at, begin), hi = std::min(at + count, end);
          if (lo >= hi) return;
          auto part = values.subspan(static_cast<size_t>(lo - begin), static_cast<size_t>(hi - lo));
          fill(init, seed, name, part, static_cast<uint64_t>(from + lo - at));
        });
}

int64_t ParamList::numel() const {
  int64_t n = 0;
  for (const auto& p : parameters_) n += p.numel();
  return n;
}

int64_t ParamList::trained_numel() const {
  int64_t n = 0;
  for (const auto& p : parameters_) n += p.trained ? p.numel() : 0;
  return n;
}

void ParamList::allocate_gradients(ExecutionContext& ctx) {
  MemoryScope use(ctx.memory(), MemoryUse::gradients);
  gradients_ = ctx.zeros({trained_numel()}, DType::f32);
  int64_t at = 0;
  for (auto& p : parameters_) {
    if (!p.trained) continue;
    p.main_grad = gradients_.slice(0, at, at + p.numel()).view(p.local);
    p.leaf->grad = p.main_grad;
    at += p.numel();
  }
}

void ParamList::clear_gradients() {
  for (auto& p : parameters_) p.leaf->has_grad = false;
}

void ParamList::zero_unwritten_gradients(ExecutionContext& ctx) {
  for (auto& p : parameters_)
    if (p.trained && !p.leaf->has_grad) ctx.fill_zero(p.main_grad);
}

Scope Scope::operator/(std::string_view name) const {
  return Scope(*settings_, path_.empty() ? std::string(name) : cat(path_, ".", name), index_);
}

const ParallelContext& Scope::parallel() const {
  static const ParallelContext alone;
  return settings_->parallel ? *settings_->parallel : alone;
}

const BlockPlan& Scope::blocks() const {
  static const BlockPlan everything_kept;
  return settings_->blocks ? *settings_->blocks : everything_kept;
}

const QuantizedProducts* Scope::quantized_products(Parameter& weight, bool head) const {
  return settings_->precision ? settings_->precision->of(*this, weight, head) : nullptr;
}

StateBuffer& Scope::buffer(std::string_view name, int64_t count, float value) const {
  const ParallelContext& p = parallel();
  bool first = axis_index(p.tp) == 0 && axis_index(p.cp) == 0 && axis_index(p.expert_group) == 0 &&
               axis_index(p.edp) == 0;
  return settings_->parameters.add_buffer(
      {(*this / name).path(), std::vector<float>(static_cast<size_t>(count), value), first});
}

namespace {

// This rank's part of each sharded dimension.
std::vector<DimShard> shards_of(const Dims& dims, const ParallelContext& parallel) {
  std::vector<DimShard> shards;
  for (int d = 0; d < static_cast<int>(dims.size()); ++d) {
    const Dim& dim = dims[static_cast<size_t>(d)];
    const Axis* axis = active_axis(parallel.of(dim.name));
    if (!dim.pieces.empty())
      shards.push_back({d, dim.pieces});
    else if (axis)
      shards.push_back({d, {even_piece(dim.size, axis)}});
  }
  return shards;
}

bool is_sharded_over(const Dims& dims, const ParallelContext& parallel, const Axis* axis) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const Dim& dim) { return parallel.of(dim.name) == axis; });
}

// Along tp: sharded, or replicated with partial gradients, or replicated with equal gradients.
std::optional<Placement> along_tensor(const Parameter& p, const ParallelContext& parallel) {
  if (p.expert || !active_axis(parallel.tp)) return std::nullopt;
  for (size_t d = 0; d < p.dims.size(); ++d)
    if (parallel.of(p.dims[d].name) == parallel.tp) return Placement::S(static_cast<int>(d));
  return parallel.sequence_parallel ? Placement::R() : Placement::I();
}

// Which other ranks hold a copy, and which have partial sums of the gradient.
void place(Parameter& p, const ParallelContext& parallel) {
  p.expert = is_sharded_over(p.dims, parallel, parallel.ep) && parallel.ep;
  p.placement = along_tensor(p, parallel);
  const Axis* tensor = active_axis(p.expert ? parallel.etp : parallel.tp);
  if (!tensor) return;
  for (size_t d = 0; d < p.dims.size(); ++d)
    if (parallel.of(p.dims[d].name) == tensor)
      p.tensor_axis = tensor, p.tensor_dim = static_cast<int>(d);
  if (p.tensor_axis) return;
  p.is_primary = tensor->index() == 0;
  if (!p.expert && parallel.sequence_parallel) p.partial.push_back({tensor, 0, p.numel()});
}

void allocate(Parameter& p, const BuildSettings& settings) {
  ExecutionContext& ctx = settings.ctx;
  MemoryScope use(ctx.memory(), MemoryUse::parameters);
  const bool initialise = settings.initialise && (!settings.imported || p.adapter);
  if (p.coded) {
    if (!initialise) return;
    std::vector<float> values(static_cast<size_t>(p.global.numel()));
    fill(p.init, ctx.seed() + settings.seed_shift, p.name, values, 0);
    return set_values(p, values);
  }
  if (!p.trained) {
    p.value = ctx.empty(p.local, p.dtype);
    if (p.dtype == DType::f32) p.master = p.value;
    if (!initialise) return;
    std::vector<float> values(static_cast<size_t>(p.numel()));
    p.init_values(ctx.seed() + settings.seed_shift, 0, values);
    return write_frozen(p, values);
  }
  p.master = ctx.empty(p.local, DType::f32);
  if (initialise) {
    std::vector<float> values(static_cast<size_t>(p.numel()));
    p.init_values(ctx.seed(), 0, values);
    ctx.upload(p.master, values.data());
  }
  p.value = p.dtype == DType::f32 ? p.master : ctx.empty(p.local, p.dtype);
  if (p.dtype != DType::f32 && initialise) ctx.copy(p.value, p.master);
}

}  // namespace

Parameter Scope::describe(std::string_view name, const Dims& dims, const Init& init, bool decay,
                          std::optional<ParamRole> role) const {
  Parameter p;
  p.name = (*this / name).path();
  p.dims = dims;
  p.decay = decay;
  p.leaf = std::make_shared<Leaf>();
  Shape shape;
  for (const auto& dim : dims) {
    MT_USER_CHECK(dim.size > 0, ErrorClass::config,
                  cat("parameter ", p.name, " has dimension ", dim.name, " = ", dim.size),
                  "check the sizes of the model section");
    shape.push_back(dim.size);
  }
  p.global = shape;
  p.role = role.value_or(shape.rank() == 2 ? ParamRole::matrix : ParamRole::other);
  p.matrices = plain_matrices(shape);
  p.shards = shards_of(dims, parallel());
  for (const auto& shard : p.shards) shape[shard.dim] = shard.size();
  p.local = shape;
  p.dtype = settings_->dtype;
  p.init = init;
  place(p, parallel());
  p.trained =
      !settings_->frozen_all && (!settings_->adapters || settings_->adapters->trains(p.name));
  p.adapter = settings_->adapters && AdapterPlan::is_adapter(p.name);
  return p;
}

Parameter& Scope::param(std::string_view name, const Dims& dims, const Init& init, bool decay,
                        std::optional<ParamRole> role) const {
  Parameter p = describe(name, dims, init, decay, role);
  if (!settings_->defer_memory || !p.trained) allocate(p, *settings_);
  return settings_->parameters.add(std::move(p));
}

Parameter& Scope::linear_weight(const Dim& out, const Dim& in, const Init& init,
                                const std::vector<LogicalMatrix>& matrices) const {
  Parameter p = describe("weight", {out, in}, init, true, ParamRole::matrix);
  if (!matrices.empty()) p.matrices = matrices;
  if (!p.trained && settings_->frozen && in_block())
    store_as_codes(p, settings_->ctx, *settings_->frozen);
  if (!settings_->defer_memory || !p.trained) allocate(p, *settings_);
  return settings_->parameters.add(std::move(p));
}

}  // namespace mtrain
