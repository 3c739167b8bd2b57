// Run: one rank's execution context — backend, stream, memory and the state of the tape. Everything
// that other systems keep global travels here; tensors know the Run they belong to. For the rank's
// own thread; must outlive its tensors.
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

class Axis;  // of dist, never looked into here

/// Tensors say what the ranks along one mesh axis hold of them, and ops refuse what does not mix
/// (mixing.h).
struct TypedAxis {
  const Axis* axis = nullptr;
  Placement stream = Placement::I();  // the residual stream's
};

class MT_API Run {
 public:
  explicit Run(Backend& backend, Device device = {}, uint64_t seed = 0);

  Backend& backend() const { return backend_; }
  Device device() const { return device_; }
  const KernelTable& kernels() const {
    return profile_ ? profile_->recording() : backend_.kernels();
  }
  Stream& stream() const { return *stream_; }
  CachingAllocator& memory() { return memory_; }

  /// From here on kernels and phases are timed; null: no longer. The profile stays its owner's.
  void set_profile(Profile* profile);
  Profile* profile() const { return profile_; }

  Tensor empty(const Shape& shape, DType dtype) {
    Tensor t(*this, shape, dtype);
    if (made) made->push_back(t.storage());
    return t;
  }
  Tensor zeros(const Shape& shape, DType dtype);
  void fill_zero(const Tensor& t);
  /// Copies host values to a new tensor.
  template <class T>
  Tensor from_host(std::span<const T> values, const Shape& shape) {
    Tensor out = empty(shape, DTypeOf<T>::value);
    MT_CHECK_EQ(static_cast<int64_t>(values.size()), out.numel());
    upload(out, values.data());
    return out;
  }
  /// Host to device; `bytes` are those of the whole (contiguous) tensor.
  void upload(const Tensor& to, const void* from);
  /// Device to host; has arrived on return.
  void download(const Tensor& from, void* to);
  /// dst = src in dst's dtype (floating types, equal counts, contiguous).
  void copy(const Tensor& dst, const Tensor& src);
  /// dst += src.
  void accumulate(const Tensor& dst, const Tensor& src);
  /// Every element of a contiguous tensor of floating type.
  void fill(const Tensor& t, float value);

  uint64_t seed() const { return seed_; }
  /// Optimizer steps done so far; part of the key of every random draw in training.
  uint64_t step = 0;
  /// Global index of the first token of the micro-batch in flight: keys dropout by token, whatever
  /// the batch split.
  int64_t first_token = 0;
  /// Which of the micro-batch's tokens the rows of this rank's residual stream are, in order, where
  /// they are not all of them: context and sequence parallelism cut them over ranks. Null: all.
  std::shared_ptr<const std::vector<RowRange>> own_tokens;
  /// Which axis tensors are typed along; nothing: they are not.
  std::optional<TypedAxis> typed;
  /// False while evaluating: no tape, no dropout.
  bool training = true;
  /// False while no tape is kept (evaluation, the forward of a recomputed block).
  bool grad_enabled = true;
  /// Losses whose gradients forward has added up already (linear_cross_entropy) and whose backward
  /// has not come yet.
  int64_t open_losses = 0;
  /// Backward passes under way, one inside another where blocks are computed again.
  int64_t backwards = 0;
  /// Where set, blocks of memory that are made are noted here (offloading asks which of them are
  /// kept).
  std::optional<std::vector<std::weak_ptr<Storage>>> made;
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
