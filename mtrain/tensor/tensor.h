// Tensor: a value handle on shared storage; copying shares. No virtuals, no maths. Storage belongs
// to a Run (run.h): the rank that made it. A Tensor is for the thread of its rank.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "mtrain/base/dtype.h"
#include "mtrain/base/export.h"
#include "mtrain/base/shape.h"
#include "mtrain/tensor/memory_use.h"
#include "mtrain/tensor/placement.h"

namespace mtrain {

class Run;

/// A block of device memory of one Run; goes back to the Run's allocator with its last handle. Its
/// memory can be given back earlier, and taken again, while there are handles: who holds parameters
/// that exist only while they are used does that.
class MT_API Storage {
 public:
  Storage(Run& run, size_t bytes);
  /// A block of somebody else's, `memory.get()`: let go of when the run's stream has done what it
  /// was given, and counted with the run's own meanwhile. It cannot be taken again.
  Storage(Run& run, size_t bytes, std::shared_ptr<void> memory);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data() const {
    if (!data_) throw_released();
    return data_;
  }
  size_t bytes() const { return bytes_; }
  bool resident() const { return data_ != nullptr; }
  /// Gives the memory back; what was in it is lost. Nothing when it is not there.
  void release();
  /// Takes memory again, uninitialised. Nothing when it is there.
  void restore();
  Run& run() const { return run_; }
  /// Takes over another block's memory with its values; that one is released. REQUIRES: equal
  /// bytes; released itself.
  void adopt(Storage& other);

 private:
  [[noreturn]] static void throw_released();
  Run& run_;
  void* data_;
  size_t bytes_;
  MemoryUse use_;
  std::shared_ptr<void> memory_;  // where it is not the run's
};

/// What the autograd layer hangs on a tensor: the node that made it.
class MT_API NodeBase {
 public:
  virtual ~NodeBase();
};

using Strides = Shape;

class MT_API Tensor {
 public:
  Tensor() = default;
  /// Uninitialised, contiguous.
  Tensor(Run& run, const Shape& shape, DType dtype);
  /// The same in memory of somebody else's (Storage).
  Tensor(Run& run, const Shape& shape, DType dtype, std::shared_ptr<void> memory);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int64_t size(int dim) const { return shape_[dim]; }
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  Run& run() const { return storage_->run(); }
  /// True when no other handle shares the storage, so that it may be written in place.
  bool unique() const { return storage_.use_count() == 1; }
  /// Whether the storage has its memory now (Storage::release, for all tensors that share it).
  bool resident() const { return storage_->resident(); }
  void release_memory() const { storage_->release(); }
  void restore_memory() const { storage_->restore(); }
  bool contiguous() const;

  /// The same elements under another shape. REQUIRES: contiguous, equal count.
  Tensor view(const Shape& shape) const;
  /// Elements [lo, hi) of one dimension, sharing storage.
  Tensor slice(int dim, int64_t lo, int64_t hi) const;
  /// What the ranks hold of it along the axis of Run::typed; nothing where that is not known, as of
  /// views and slices, or not told.
  const std::optional<Placement>& placement() const { return placement_; }
  void set_placement(std::optional<Placement> placement) { placement_ = placement; }
  /// The handle without its autograd node.
  Tensor detach() const;

  /// The block that the elements lie in.
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// Device pointer to the first element.
  void* raw() const {
    return static_cast<char*>(storage_->data()) + static_cast<size_t>(offset_) * size_of(dtype_);
  }
  /// Typed device pointer. REQUIRES: dtype matches, contiguous.
  template <class T>
  T* data() const {
    MT_CHECK(DTypeOf<T>::value == dtype_, "tensor holds ", name(dtype_));
    MT_CHECK(contiguous(), shape_);
    return static_cast<T*>(raw());
  }

  const std::shared_ptr<NodeBase>& node() const { return node_; }
  void set_node(std::shared_ptr<NodeBase> node) { node_ = std::move(node); }

 private:
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<NodeBase> node_;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::f32;
  std::optional<Placement> placement_;
};

}  // namespace mtrain
