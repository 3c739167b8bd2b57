#include "mtrain/nn/parameter.h"

#include <algorithm>
#include <vector>

#include "mtrain/nn/scope.h"

namespace mtrain {

Parameter& ParamList::add(Parameter parameter) {
  MT_CHECK(find(parameter.name) == nullptr, "two parameters named ", parameter.name);
  return parameters_.emplace_back(std::move(parameter));
}

StateBuffer& ParamList::add_buffer(StateBuffer buffer) {
  for (const StateBuffer& other : buffers_) MT_CHECK(other.name != buffer.name, "two buffers named ", buffer.name);
  return buffers_.emplace_back(std::move(buffer));
}

Parameter* ParamList::find(std::string_view name) {
  for (auto& p : parameters_)
    if (p.name == name) return &p;
  return nullptr;
}

std::vector<ParamBox> Parameter::boxes() const {
  Shape zero;
  for (int d = 0; d < global.rank(); ++d) zero.push_back(0);
  std::vector<ParamBox> boxes = {{zero, zero, global, counted}};
  for (const DimShard& shard : shards) {
    std::vector<ParamBox> cut;
    for (const ParamBox& box : boxes)
      for (const ShardPiece& piece : shard.pieces) {
        if (piece.size == 0) continue;
        ParamBox part = box;
        part.global[shard.dim] = piece.global, part.local[shard.dim] = piece.local, part.extent[shard.dim] = piece.size;
        part.counted = box.counted && piece.counted;
        cut.push_back(part);
      }
    boxes = std::move(cut);
  }
  return boxes;
}

std::vector<std::pair<int64_t, int64_t>> ParamList::counted_ranges() const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t base = 0;
  for (const auto& p : parameters_) {
    for (const ParamBox& box : p.boxes()) {
      if (!box.counted) continue;
      for_each_run(box, p.global, p.master.shape(), [&](int64_t, int64_t local, int64_t count) {
        int64_t begin = base + local, end = begin + count;
        if (!ranges.empty() && ranges.back().second == begin) ranges.back().second = end;
        else ranges.emplace_back(begin, end);
      });
    }
    base += p.numel();
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

int64_t ParamList::numel() const {
  int64_t n = 0;
  for (const auto& p : parameters_) n += p.numel();
  return n;
}

void ParamList::allocate_gradients(Run& run) {
  MemoryScope use(run.memory(), MemoryUse::gradients);
  gradients_ = run.zeros({numel()}, DType::f32);
  int64_t at = 0;
  for (auto& p : parameters_) {
    p.main_grad = gradients_.slice(0, at, at + p.numel()).view(p.master.shape());
    p.leaf->grad = p.main_grad;
    at += p.numel();
  }
}

void ParamList::clear_gradients() {
  for (auto& p : parameters_) p.leaf->has_grad = false;
}

void ParamList::settle_gradients(Run& run) {
  for (auto& p : parameters_)
    if (!p.leaf->has_grad) run.fill_zero(p.main_grad);
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

StateBuffer& Scope::buffer(std::string_view name, int64_t count, float value) const {
  const ParallelContext& p = parallel();
  bool first = axis_index(p.tp) == 0 && axis_index(p.cp) == 0 && axis_index(p.expert_group) == 0 && axis_index(p.edp) == 0;
  return settings_->parameters.add_buffer({(*this / name).path(), std::vector<float>(static_cast<size_t>(count), value), first});
}

namespace {

// What this rank holds of each dimension that is cut.
std::vector<DimShard> shards_of(const Dims& dims, const ParallelContext& parallel) {
  std::vector<DimShard> shards;
  for (int d = 0; d < static_cast<int>(dims.size()); ++d) {
    const Dim& dim = dims[static_cast<size_t>(d)];
    const Axis* axis = cutting(parallel.of(dim.name));
    if (!dim.pieces.empty()) shards.push_back({d, dim.pieces});
    else if (axis) shards.push_back({d, {even_piece(dim.size, axis)}});
  }
  return shards;
}

bool cut_by(const Dims& dims, const ParallelContext& parallel, const Axis* axis) {
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return parallel.of(dim.name) == axis; });
}

// Who else holds a copy, and whose gradients are summands.
void place(Parameter& p, const ParallelContext& parallel) {
  p.expert = cut_by(p.dims, parallel, parallel.ep) && parallel.ep;
  const Axis* tensor = cutting(p.expert ? parallel.etp : parallel.tp);
  if (!tensor || cut_by(p.dims, parallel, tensor)) return;
  p.counted = tensor->index() == 0;
  if (!p.expert && parallel.sequence) p.partial.push_back({tensor, 0, p.numel()});
}

// Writes the start values of the local boxes.
void initialise(const Parameter& p, const Init& init, uint64_t seed, std::span<float> values) {
  for (const ParamBox& box : p.boxes())
    for_each_run(box, p.global, p.master.shape(), [&](int64_t global, int64_t local, int64_t count) {
      auto run = values.subspan(static_cast<size_t>(local), static_cast<size_t>(count));
      fill(init, seed, p.name, run, static_cast<uint64_t>(global));
    });
}

}  // namespace

Parameter& Scope::param(std::string_view name, const Dims& dims, const Init& init, bool decay) const {
  Parameter p;
  p.name = (*this / name).path();
  p.dims = dims;
  p.decay = decay;
  p.leaf = std::make_shared<Leaf>();
  Shape shape;
  for (const auto& dim : dims) {
    MT_USER_CHECK(dim.size > 0, ErrorClass::config, cat("parameter ", p.name, " has dimension ", dim.name, " = ", dim.size),
                  "check the sizes of the model section");
    shape.push_back(dim.size);
  }
  p.global = shape;
  p.shards = shards_of(dims, parallel());
  for (const auto& shard : p.shards) shape[shard.dim] = shard.size();
  Run& run = settings_->run;
  MemoryScope use(run.memory(), MemoryUse::parameters);
  p.master = run.empty(shape, DType::f32);
  place(p, parallel());
  if (settings_->initialise) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    mtrain::initialise(p, init, run.seed(), values);
    run.upload(p.master, values.data());
  }
  if (settings_->dtype == DType::f32) {
    p.value = p.master;
  } else {
    p.value = run.empty(shape, settings_->dtype);
    if (settings_->initialise) run.copy(p.value, p.master);
  }
  return settings_->parameters.add(std::move(p));
}

}  // namespace mtrain
