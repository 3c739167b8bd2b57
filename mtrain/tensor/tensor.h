// Tensor: a value handle on shared storage with a shape and strides; copies share the storage. No
// virtual functions, no maths. Storage belongs to the ExecutionContext of the rank that created it.
// For the thread of that rank.
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

class ExecutionContext;

/// A block of device memory of one ExecutionContext; returns to the ExecutionContext's allocator
/// when its last handle is destroyed. The memory can also be released earlier and restored later
/// while handles exist; owners of parameters that need memory only during use do that.
class MT_API Storage {
 public:
  Storage(ExecutionContext& ctx, size_t bytes);
  /// A block `memory.get()` that was not allocated by the context. The context counts it as its
  /// memory, and `memory` is released after the context's stream has completed its work. The block
  /// cannot be restored.
  Storage(ExecutionContext& ctx, size_t bytes, std::shared_ptr<void> memory);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data() const {
    if (!data_) throw_released();
    return data_;
  }
  size_t bytes() const { return bytes_; }
  bool resident() const { return data_ != nullptr; }
  /// Frees the memory; its content is lost. Does nothing if it is already released.
  void release();
  /// Allocates the memory again, uninitialised. Does nothing if it is resident.
  void restore();
  ExecutionContext& context() const { return ctx_; }
  /// Takes over the memory and values of another block, which becomes released. REQUIRES: equal
  /// bytes; this block is released.
  void adopt(Storage& other);

 private:
  [[noreturn]] static void throw_released();
  ExecutionContext& ctx_;
  void* data_;
  size_t bytes_;
  MemoryUse use_;
  std::shared_ptr<void> memory_;  // set if the memory is not from the context's allocator
};

/// Base class of the autograd node that produced a tensor.
class MT_API NodeBase {
 public:
  virtual ~NodeBase();
};

using Strides = Shape;

class MT_API Tensor {
 public:
  Tensor() = default;
  /// Uninitialised, contiguous.
  Tensor(ExecutionContext& ctx, const Shape& shape, DType dtype);
  /// The same in memory that was allocated elsewhere (see Storage).
  Tensor(ExecutionContext& ctx, const Shape& shape, DType dtype, std::shared_ptr<void> memory);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int64_t size(int dim) const { return shape_[dim]; }
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  ExecutionContext& context() const { return storage_->context(); }
  /// True if no other handle shares the storage, so it may be written in place.
  bool unique() const { return storage_.use_count() == 1; }
  /// Whether the storage has memory now (Storage::release affects all tensors that share it).
  bool resident() const { return storage_->resident(); }
  void release_memory() const { storage_->release(); }
  void restore_memory() const { storage_->restore(); }
  bool contiguous() const;

  /// The same elements with another shape, sharing storage. Keeps the autograd node, so gradients
  /// flow through it. REQUIRES: contiguous, equal number of elements.
  Tensor view(const Shape& shape) const;
  /// Elements [lo, hi) of one dimension, sharing storage. Not differentiable, unlike PyTorch's:
  /// backward through a slice throws Error(bug).
  Tensor slice(int dim, int64_t lo, int64_t hi) const;
  /// The placement along the axis of ExecutionContext::tracked_axis; nothing if it is unknown, as
  /// for views and slices, or was not set.
  const std::optional<Placement>& placement() const { return placement_; }
  void set_placement(std::optional<Placement> placement) { placement_ = placement; }
  /// The handle without its autograd node.
  Tensor detach() const;

  /// The block that holds the elements.
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
