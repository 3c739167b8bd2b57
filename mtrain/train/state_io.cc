#include "mtrain/train/state_io.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <latch>
#include <new>
#include <set>

#include "mtrain/base/counted.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/checkpoint/checkpoint_reader.h"
#include "mtrain/nn/coded_parameter.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/train/principal_start.h"

namespace mtrain {

/// A tensor of the state: elements from `begin` on of this rank's part [local] of a whole [global].
struct StateTensor {
  std::string name;
  Shape global, local;
  int64_t begin;
  Tensor tensor;
  std::vector<ParamBox> boxes;  // of its elements
  bool is_primary;              // this rank saves it
};

namespace {

StateTensor part_of(const Parameter& p, std::string name, int64_t begin, const Tensor& tensor,
                    bool is_primary) {
  return {std::move(name), p.global, p.local,
          begin,           tensor,   p.boxes_of(begin, begin + tensor.numel()),
          is_primary};
}
StateTensor whole_of(const std::string& name, const Tensor& tensor, bool is_primary) {
  const Box whole = whole_box(tensor.shape());
  return {name, tensor.shape(), tensor.shape(), 0, tensor, {{whole, whole, true}}, is_primary};
}

// Every tensor of the state with its name, in a fixed order.
std::vector<StateTensor> state_tensors(ParamList& parameters, OptimizerState* optimizer) {
  std::vector<StateTensor> named;
  if (!optimizer) {
    for (auto& p : parameters.all())
      if (p.trained) named.push_back(part_of(p, p.name, 0, p.master, true));
    return named;
  }
  for (auto& e : optimizer->entries()) {
    const Parameter& p = *e.parameter;
    named.push_back(part_of(p, p.name, e.begin, e.master, e.is_primary));
    for (size_t i = 0; i < e.state.size(); ++i)
      named.push_back(part_of(p, cat(p.name, ".", e.names[i]), e.begin, e.state[i], e.is_primary));
  }
  for (const auto& m : optimizer->matrix_entries())
    named.push_back(whole_of(m.name, m.tensor, m.is_primary));
  return named;
}

std::vector<StateTensor> masters_of(OptimizerState& optimizer) {
  std::vector<StateTensor> out;
  for (auto& e : optimizer.entries())
    out.push_back(part_of(*e.parameter, e.parameter->name, e.begin, e.master, e.is_primary));
  return out;
}

/// Whether a step has any state of the optimizer. Every rank asks for all parameters' names, of
/// which each has the same states.
bool has_optimizer_state(const CheckpointStore& store, OptimizerState& optimizer) {
  std::set<std::string> names;
  for (const StoredTensorInfo& t : store.tensors(0)) names.insert(t.name);
  bool stateless = optimizer.matrix_entries().empty();
  for (auto& e : optimizer.entries())
    for (const std::string& state : e.names) {
      if (names.contains(cat(e.parameter->name, ".", state))) return true;
      stateless = false;
    }
  for (const auto& m : optimizer.matrix_entries())
    if (names.contains(m.name)) return true;
  return stateless;
}

}  // namespace

/// Host memory of the slices, and the position of each slice in its tensor.
class StateStaging {
 public:
  StateStaging() = default;
  /// `in_place`: a whole tensor in host memory is saved from there, without a copy.
  StateStaging(std::vector<StateTensor> tensors, bool primary_only, bool in_place = false)
      : tensors_(std::move(tensors)), in_place_(in_place) {
    for (const StateTensor& t : tensors_)
      for (const ParamBox& box : t.boxes) {
        if (primary_only && !(t.is_primary && box.is_primary)) continue;
        slices_.push_back({t.name, DType::f32, t.global, box.global.offset, box.global.extent, {}});
        boxes_.push_back({&t, box});
      }
  }
  StateStaging(StateStaging&&) = default;
  StateStaging& operator=(StateStaging&&) = default;

  /// Adds the model's buffers to a save: copies of the whole buffers that this rank saves.
  void add_copies(const std::deque<StateBuffer>& buffers) {
    for (const StateBuffer& b : buffers) {
      if (!b.is_primary) continue;
      const auto bytes = std::as_bytes(std::span(b.values));
      slices_.push_back(whole_slice(b.name, DType::f32, shape_of(b),
                                    copies_.emplace_back(bytes.begin(), bytes.end())));
    }
  }
  /// Adds the model's buffers to a load, which fills them in place. Buffers that are not in the
  /// checkpoint and may be reset are left out; returns the names of those, each on the one rank
  /// that saves it.
  std::vector<std::string> add_stored(std::deque<StateBuffer>& buffers,
                                      const std::vector<StoredTensorInfo>& stored) {
    std::vector<std::string> missing;
    for (StateBuffer& b : buffers) {
      auto is_it = [&](const StoredTensorInfo& t) {
        return t.name == b.name && t.shape == shape_of(b);
      };
      if (!b.optional_in_checkpoint || std::any_of(stored.begin(), stored.end(), is_it))
        slices_.push_back(whole_slice(b.name, DType::f32, shape_of(b),
                                      std::as_writable_bytes(std::span(b.values))));
      else if (b.is_primary)
        missing.push_back(b.name);
    }
    return missing;
  }
  std::vector<Slice>& slices() { return slices_; }
  /// The context of the tensors; null if there are no tensors.
  ExecutionContext* context() const {
    return boxes_.empty() ? nullptr : &boxes_[0].first->tensor.context();
  }

  /// Copies device to host on its own stream, without using the tensors' allocator, so that it can
  /// run on any thread.
  void from_device(const std::atomic<bool>& cancelled) {
    if (boxes_.empty()) return;
    Backend& backend = context()->backend();
    auto stream = backend.copy_stream(context()->device());
    auto fetch = [&](const Tensor& tensor, void* to) {
      backend.copy(*stream, to, tensor.raw(), static_cast<size_t>(tensor.numel()) * sizeof(float));
    };
    std::vector<float> whole;
    each_tensor([&](const StateTensor& t, size_t begin, size_t end) {
      if (cancelled) throw Error(ErrorClass::io, "the save was cancelled");
      copy_point();
      const bool whole_here = boxes_[begin].second.local.extent.numel() == t.tensor.numel();
      if (in_place_ && whole_here && backend.host_memory()) {
        host_.push_back(nullptr);
        slices_[begin].data = {static_cast<std::byte*>(t.tensor.raw()),
                               static_cast<size_t>(t.tensor.numel()) * sizeof(float)};
        return;
      }
      for (size_t i = begin; i < end; ++i) allocate(i);
      if (boxes_[begin].second.local.extent.numel() == t.tensor.numel())
        return fetch(t.tensor, host_[begin].get());
      whole.resize(static_cast<size_t>(t.tensor.numel()));
      fetch(t.tensor, whole.data());
      each_run(t, begin, end, [&](int64_t at, float* piece, size_t n) {
        std::copy_n(whole.data() + at, n, piece);
      });
    });
  }
  void allocate() {
    for (size_t i = 0; i < boxes_.size(); ++i) allocate(i);
  }
  void to_device() {
    std::vector<float> whole;
    each_tensor([&](const StateTensor& t, size_t begin, size_t end) {
      whole.resize(static_cast<size_t>(t.tensor.numel()));
      each_run(t, begin, end, [&](int64_t at, float* piece, size_t n) {
        std::copy_n(piece, n, whole.data() + at);
      });
      t.tensor.context().upload(t.tensor, whole.data());
    });
  }
  /// Frees the host memory of the slices.
  void drop() { host_.clear(); }

 private:
  static Shape shape_of(const StateBuffer& b) { return {static_cast<int64_t>(b.values.size())}; }

  /// Failpoint that tests reach once for each tensor of the state.
  static void copy_point() {
    Fault fault = failpoint("ckpt.copy");
    if (fault.error == ENOMEM) throw std::bad_alloc();
    if (fault)
      throw Error(ErrorClass::io,
                  cat("cannot copy the state to host memory: ", std::strerror(fault.error)));
  }

  void allocate(size_t i) {
    auto bytes = static_cast<size_t>(boxes_[i].second.local.extent.numel()) * sizeof(float);
    host_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    slices_[i].data = {host_.back().get(), bytes};
  }

  /// visit(tensor, first box, one past its last box): the boxes of a tensor are consecutive.
  template <class Visit>
  void each_tensor(Visit&& visit) {
    for (size_t begin = 0, end = 0; begin < boxes_.size(); begin = end) {
      const StateTensor* t = boxes_[begin].first;
      while (end < boxes_.size() && boxes_[end].first == t) ++end;
      visit(*t, begin, end);
    }
  }
  /// visit(element of the tensor, its address in the slice, count).
  template <class Visit>
  void each_run(const StateTensor& t, size_t begin, size_t end, Visit&& visit) {
    for (size_t i = begin; i < end; ++i) {
      auto piece = reinterpret_cast<float*>(host_[i].get());
      const ParamBox& box = boxes_[i].second;
      for_each_run(box.global, t.global, box.local, t.local,
                   [&](int64_t, int64_t local, int64_t count) {
                     visit(local - t.begin, piece, static_cast<size_t>(count));
                     piece += count;
                   });
    }
  }

  std::vector<StateTensor> tensors_;
  bool in_place_ = false;
  std::deque<std::vector<std::byte>> copies_;
  std::vector<Slice>
      slices_;  // first the slices of boxes_, in the same order, then those of buffers
  std::vector<std::pair<const StateTensor*, ParamBox>> boxes_;
  std::vector<std::unique_ptr<std::byte[]>> host_;  // by box
};

/// Shared by the save's thread and the rank's thread: the rank's thread calls plan(), the save's
/// thread copy().
struct StateSave::Host {
  // Keeps an exception for copy(), so that a failure here fails the save on every rank.
  void plan(ParamList& parameters, OptimizerState* optimizer) noexcept {
    try {
      staging = StateStaging(state_tensors(parameters, optimizer), true, !optimizer);
      staging.add_copies(parameters.buffers());
      if (ExecutionContext* ctx = staging.context()) ctx->stream().synchronize();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  std::vector<Slice> copy() {
    struct Done {
      std::latch& latch;
      ~Done() { latch.count_down(); }
    } done{copied};
    try {
      if (failure) std::rethrow_exception(failure);
      staging.from_device(cancelled);
      return staging.slices();
    } catch (...) {
      staging.drop();
      throw;
    }
  }

  StateStaging staging;
  std::exception_ptr failure;
  std::atomic<bool> cancelled{false};
  std::latch copied{1};
};

StateSave::StateSave(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer,
                     const CheckpointMeta& meta)
    : step_(meta.state.step), host_(std::make_unique<Host>()) {
  if (failpoint("ckpt.begin").error == ENOMEM) throw std::bad_alloc();
  host_->plan(parameters, optimizer);
  save_.emplace(store.start_save(
      step_, [host = host_.get()] { return host->copy(); }, to_json(meta)));
}

StateSave::StateSave(StateSave&&) noexcept = default;
StateSave::~StateSave() {
  if (host_) host_->cancelled = true;
}
bool StateSave::copied() const { return host_->copied.try_wait(); }
void StateSave::wait_copied() { host_->copied.wait(); }

SaveResult save_state(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer,
                      const CheckpointMeta& meta) {
  return StateSave(store, parameters, optimizer, meta).wait();
}

std::vector<std::string> load_state(const CheckpointStore& store, int64_t step,
                                    ParamList& parameters, OptimizerState* optimizer) {
  const bool weights_only = optimizer && step == 0 && !has_optimizer_state(store, *optimizer);
  StateStaging staging(weights_only ? masters_of(*optimizer) : state_tensors(parameters, optimizer),
                       false);
  std::vector<std::string> missing;
  if (!parameters.buffers().empty())
    missing = staging.add_stored(parameters.buffers(), store.tensors(step));
  staging.allocate();
  store.load(step, staging.slices());
  staging.to_device();
  if (optimizer) {
    optimizer->masters_changed();
    return missing;
  }
  for (auto& p : parameters.all())
    if (p.trained && p.dtype != DType::f32) p.value.context().copy(p.value, p.master);
  return missing;
}

namespace {

/// The whole of a parameter.
std::vector<float> whole_values(CheckpointReader& reader, const Parameter& p) {
  Parameter whole = p;
  whole.shards.clear(), whole.local = p.global, whole.is_primary = true;
  ExecutionContext& ctx = p.value.context();
  std::vector<float> values(static_cast<size_t>(p.global.numel()));
  {
    const Tensor wide = ctx.empty(p.global, DType::f32);
    StateStaging staging({part_of(whole, p.name, 0, wide, true)}, false);
    staging.allocate();
    reader.load(staging.slices());
    staging.to_device();
    ctx.download(wide, values.data());
  }
  return values;
}

/// Writes this rank's part of a frozen parameter.
void put_frozen(Parameter& p, const std::vector<float>& whole) {
  if (p.coded) return set_values(p, whole);
  write_frozen(p, p.own_part(whole));
}

bool lacks_score(const std::vector<StoredTensorInfo>& stored) {
  return std::none_of(stored.begin(), stored.end(),
                      [](const StoredTensorInfo& t) { return t.name == kScoreWeight; });
}

/// The head of scores of a run that starts from the weights of a model of tokens.
void start_score(Parameter& p) {
  MT_USER_CHECK(p.trained, ErrorClass::config,
                cat(p.name,
                    " starts from random values, since the run of model.init_from has no "
                    "head of scores, and peft does not train it"),
                cat("add it to peft.train: peft.train=[", p.name, "]"));
  std::vector<float> values(static_cast<size_t>(p.numel()));
  ExecutionContext& ctx = p.value.context();
  p.init_values(ctx.seed(), 0, values);
  ctx.upload(p.master, values.data());
  if (p.dtype != DType::f32) ctx.copy(p.value, p.master);
}

/// Of the head over the vocabulary, whose place one of scores takes.
bool is_other_head(ParamList& parameters, const std::string& stored) {
  return stored.starts_with("head.") && parameters.find(kScoreWeight);
}

}  // namespace

void load_weights(const CheckpointStore& store, int64_t step, ParamList& parameters,
                  PrincipalStart* principal) {
  CheckpointReader reader(store, step);
  const bool new_score = lacks_score(reader.tensors());
  for (auto& p : parameters.all()) {
    if (p.adapter) continue;
    if (new_score && is_of_score_head(p.name)) {
      start_score(p);
      continue;
    }
    if (p.coded || (principal && principal->splits(p))) {  // every rank reads the whole
      std::vector<float> values = whole_values(reader, p);
      if (principal) principal->split(p, values);
      put_frozen(p, values);
      continue;
    }
    ExecutionContext& ctx = p.value.context();
    const Tensor master = p.master.defined() ? p.master : ctx.empty(p.local, DType::f32);
    StateStaging staging({part_of(p, p.name, 0, master, true)}, false);
    staging.allocate();
    reader.load(staging.slices());
    staging.to_device();
    if (p.dtype != DType::f32) ctx.copy(p.value, master);
  }
  if (parameters.buffers().empty()) return;
  StateStaging staging;
  staging.add_stored(parameters.buffers(), reader.tensors());
  reader.load(staging.slices());
}

void require_all_parameters_read(const CheckpointStore& store, int64_t step,
                                 ParamList& parameters) {
  constexpr size_t kMaxNamed = 8;
  const std::vector<StoredTensorInfo> stored = store.tensors(step);
  std::set<std::string> read, names, with_state;
  for (const Parameter& p : parameters.all()) read.insert(p.name);
  for (const StateBuffer& b : parameters.buffers()) read.insert(b.name);
  for (const StoredTensorInfo& t : stored) names.insert(t.name);
  auto owner_of = [&](const std::string& name) {
    for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1))
      if (names.contains(name.substr(0, dot))) return name.substr(0, dot);
    return std::string();
  };
  std::vector<const StoredTensorInfo*> roots;  // without the optimizer's state
  for (const StoredTensorInfo& t : stored) {
    const std::string owner = owner_of(t.name);
    if (owner.empty())
      roots.push_back(&t);
    else
      with_state.insert(owner);
  }
  std::vector<std::string> unread;
  for (const StoredTensorInfo* t : roots)
    if (!read.contains(t->name) && !is_other_head(parameters, t->name) &&
        (t->shape.rank() > 1 || with_state.contains(t->name)))
      unread.push_back(cat(t->name, " ", t->shape));
  if (unread.empty()) return;
  const size_t total = unread.size();
  if (total > kMaxNamed) {
    unread.resize(kMaxNamed);
    unread.push_back(cat("and ", total - kMaxNamed, " more"));
  }
  throw Error(ErrorClass::checkpoint,
              cat(store.step_folder(step).string(), " has ", counted(total, "parameter"),
                  " that this model does not have:\n  ", join(unread, "\n  ")),
              "use the model settings with which it was trained");
}

}  // namespace mtrain
