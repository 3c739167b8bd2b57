// The execution context of one rank: backend, stream, memory and the state of the tape. It holds
// what other frameworks keep in globals; each tensor refers to its context. For the rank's own
// thread; must outlive its tensors. Does not own the backend.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mtrain/tensor/allocator.h"
#include "mtrain/tensor/backend.h"
#include "mtrain/tensor/profile.h"
#include "mtrain/tensor/row_range.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

class Axis;  // from layer dist; only a reference here

/// The mesh axis along which tensors carry placements. Ops refuse combinations that the propagation
/// rules do not allow (mixing.h).
struct PlacementAxis {
  const Axis* axis = nullptr;
  Placement residual = Placement::I();  // placement of the residual stream
};

class MT_API ExecutionContext {
 public:
  explicit ExecutionContext(Backend& backend, Device device = {}, uint64_t seed = 0);

  Backend& backend() const { return backend_; }
  Device device() const { return device_; }
  const KernelTable& kernels() const {
    return profile_ ? profile_->recording() : backend_.kernels();
  }
  Stream& stream() const { return *stream_; }
  CachingAllocator& memory() { return memory_; }

  /// Waits for the stream's work, then times kernels and phases; null: stops. The caller keeps
  /// ownership of the profile.
  void set_profile(Profile* profile);
  Profile* profile() const { return profile_; }

  Tensor empty(const Shape& shape, DType dtype) {
    Tensor t(*this, shape, dtype);
    if (created_storages) created_storages->push_back(t.storage());
    return t;
  }
  Tensor zeros(const Shape& shape, DType dtype);
  void fill_zero(const Tensor& t);
  /// Copies host values to a new contiguous tensor.
  template <class T>
  Tensor from_host(std::span<const T> values, const Shape& shape) {
    Tensor out = empty(shape, DTypeOf<T>::value);
    MT_CHECK_EQ(static_cast<int64_t>(values.size()), out.numel());
    upload(out, values.data());
    return out;
  }
  /// Host to device; copies the whole (contiguous) tensor.
  void upload(const Tensor& to, const void* from);
  /// Device to host; complete on return.
  void download(const Tensor& from, void* to);
  /// dst = src, converted to the dtype of dst (floating types, equal numbers of elements,
  /// contiguous).
  void copy(const Tensor& dst, const Tensor& src);
  /// dst += src.
  void accumulate(const Tensor& dst, const Tensor& src);
  /// Sets every element of a contiguous tensor of floating type.
  void fill(const Tensor& t, float value);

  uint64_t seed() const { return seed_; }
  /// Index of the current step, from 0; skipped steps count (TrainState::step). Part of the key of
  /// every random draw in training.
  uint64_t step = 0;
  /// Global index of the first token of the current micro-batch: keys dropout by token, independent
  /// of how the batch is split.
  int64_t first_token = 0;
  /// The tokens of the micro-batch that the rows of this rank's residual stream represent, in
  /// order. Set where context or sequence parallelism shards the tokens over ranks; null: all
  /// tokens.
  std::shared_ptr<const std::vector<RowRange>> own_tokens;
  /// The axis along which tensors carry placements; nothing: they carry none.
  std::optional<PlacementAxis> tracked_axis;
  /// False during evaluation: no tape, no dropout.
  bool training = true;
  /// False while no tape is recorded (evaluation, the forward of a recomputed block).
  bool grad_enabled = true;
  /// Losses whose gradients forward has already accumulated (linear_cross_entropy) and whose
  /// backward has not run yet.
  int64_t open_losses = 0;
  /// Number of backward passes in progress; they nest where blocks are recomputed.
  int64_t backwards = 0;
  /// If set, records each new storage (offloading checks which of them stay alive).
  std::optional<std::vector<std::weak_ptr<Storage>>> created_storages;
  /// Creation number of the next tape node.
  uint64_t next_node = 0;

 private:
  Backend& backend_;
  Device device_;
  std::unique_ptr<Stream> stream_;
  CachingAllocator memory_;
  uint64_t seed_;
  Profile* profile_ = nullptr;
};

}  // namespace mtrain
