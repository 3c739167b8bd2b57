#include "mtrain/train/state_io.h"

#include <algorithm>
#include <deque>

namespace mtrain {
namespace {

/// A tensor of the state, shaped and cut like a parameter: local elements from `begin` on.
struct StateTensor {
  std::string name;
  const Parameter* parameter;
  int64_t begin;
  Tensor tensor;
  bool counted;  // this rank saves it
};

// Every tensor of the state with its name, in a fixed order.
std::vector<StateTensor> state_tensors(ParamList& parameters, OptimizerState* optimizer) {
  std::vector<StateTensor> named;
  if (!optimizer) {
    for (auto& p : parameters.all()) named.push_back({p.name, &p, 0, p.master, true});
    return named;
  }
  for (auto& e : optimizer->entries()) {
    named.push_back({e.parameter->name, e.parameter, e.begin, e.master, e.counted});
    for (size_t i = 0; i < e.state.size(); ++i)
      named.push_back({cat(e.parameter->name, ".", optimizer->names()[i]), e.parameter, e.begin, e.state[i], e.counted});
  }
  return named;
}

/// Host memory of the slices, and how they lie in the tensors.
class Staging {
 public:
  Staging(std::vector<StateTensor> tensors, bool counted_only) : tensors_(std::move(tensors)) {
    for (const StateTensor& t : tensors_)
      for (const ParamBox& box : t.parameter->boxes_of(t.begin, t.begin + t.tensor.numel())) {
        if (counted_only && !(t.counted && box.counted)) continue;
        auto& bytes = host_.emplace_back(static_cast<size_t>(box.extent.numel()) * sizeof(float));
        slices_.push_back({t.name, DType::f32, t.parameter->global, box.global, box.extent, bytes});
        boxes_.push_back({&t, box});
      }
  }
  /// A model's buffers go whole: to be loaded as they lie in memory, to be saved as copies.
  void add(std::deque<StateBuffer>& buffers, bool to_save) {
    for (StateBuffer& b : buffers) {
      if (to_save && !b.counted) continue;
      auto bytes = std::as_writable_bytes(std::span(b.values));
      if (to_save) bytes = copies_.emplace_back(bytes.begin(), bytes.end());
      slices_.push_back(whole_slice(b.name, DType::f32, {static_cast<int64_t>(b.values.size())}, bytes));
    }
  }
  std::vector<Slice>& slices() { return slices_; }

  void from_device() {
    each_tensor([](Run& run, const Tensor& tensor, std::vector<float>& whole) { run.download(tensor, whole.data()); },
                [](float* whole, float* piece, size_t n) { std::copy_n(whole, n, piece); }, [](Run&, const Tensor&, auto&) {});
  }
  void to_device() {
    each_tensor([](Run&, const Tensor&, std::vector<float>&) {},
                [](float* whole, float* piece, size_t n) { std::copy_n(piece, n, whole); },
                [](Run& run, const Tensor& tensor, std::vector<float>& whole) { run.upload(tensor, whole.data()); });
  }

 private:
  /// Boxes of one tensor follow each other.
  template <class Begin, class Copy, class End>
  void each_tensor(Begin&& begin, Copy&& copy, End&& end) {
    std::vector<float> whole;
    for (size_t i = 0; i < boxes_.size();) {
      const StateTensor& t = *boxes_[i].first;
      Run& run = t.tensor.run();
      whole.resize(static_cast<size_t>(t.tensor.numel()));
      begin(run, t.tensor, whole);
      for (; i < boxes_.size() && boxes_[i].first == &t; ++i) {
        auto piece = reinterpret_cast<float*>(host_[i].data());
        for_each_run(boxes_[i].second, t.parameter->global, t.parameter->local, [&](int64_t, int64_t local, int64_t count) {
          copy(whole.data() + (local - t.begin), piece, static_cast<size_t>(count));
          piece += count;
        });
      }
      end(run, t.tensor, whole);
    }
  }

  std::vector<StateTensor> tensors_;
  std::deque<std::vector<std::byte>> host_, copies_;
  std::vector<Slice> slices_;
  std::vector<std::pair<const StateTensor*, ParamBox>> boxes_;
};

}  // namespace

struct StateSave::Host {
  explicit Host(std::vector<StateTensor> tensors) : staging(std::move(tensors), true) {}
  Staging staging;
};

StateSave::StateSave(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer, const CheckpointMeta& meta)
    : step_(meta.state.step), host_(std::make_unique<Host>(state_tensors(parameters, optimizer))) {
  Staging& staging = host_->staging;
  staging.add(parameters.buffers(), true);
  staging.from_device();
  save_.emplace(store.start_save(step_, staging.slices(), to_json(meta)));
}

StateSave::StateSave(StateSave&&) noexcept = default;
StateSave::~StateSave() = default;

SaveResult save_state(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer, const CheckpointMeta& meta) {
  return StateSave(store, parameters, optimizer, meta).wait();
}

void load_state(const CheckpointStore& store, int64_t step, ParamList& parameters, OptimizerState* optimizer) {
  Staging staging(state_tensors(parameters, optimizer), false);
  staging.add(parameters.buffers(), false);
  store.load(step, staging.slices());
  staging.to_device();
  if (optimizer) return optimizer->masters_changed();
  for (auto& p : parameters.all())
    if (p.dtype != DType::f32) p.value.run().copy(p.value, p.master);
}

}  // namespace mtrain
