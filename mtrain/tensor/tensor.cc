#include "mtrain/tensor/tensor.h"

#include <utility>

#include "mtrain/base/log.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

Stream::~Stream() = default;
Backend::~Backend() = default;
Bf16Products Backend::bf16_products() const {
  return {true, cat(name(), " devices have bf16 arithmetic")};
}
DeviceBackend::~DeviceBackend() = default;
NodeBase::~NodeBase() = default;

Storage::Storage(ExecutionContext& ctx, size_t bytes)
    : ctx_(ctx), data_(ctx.memory().take(bytes)), bytes_(bytes), use_(ctx.memory().use()) {}
Storage::Storage(ExecutionContext& ctx, size_t bytes, std::shared_ptr<void> memory)
    : ctx_(ctx),
      data_(memory.get()),
      bytes_(bytes),
      use_(ctx.memory().use()),
      memory_(std::move(memory)) {
  ctx.memory().add_external(bytes, use_);
}
Storage::~Storage() { release(); }

void Storage::release() {
  if (!data_) return;
  void* data = std::exchange(data_, nullptr);
  if (!memory_) return ctx_.memory().give(data, bytes_, use_);
  try {
    ctx_.stream().synchronize();
  } catch (const std::exception& error) {
    log_warn("memory is freed although a stream failed: ", error.what());
  }
  memory_.reset();
  ctx_.memory().remove_external(bytes_, use_);
}

void Storage::restore() {
  if (data_) return;
  MemoryScope use(ctx_.memory(), use_);
  data_ = ctx_.memory().take(bytes_);
}

void Storage::throw_released() {
  throw Error(ErrorClass::bug,
              "a tensor is used after its memory was freed; parameters are reached through "
              "Parameter::use()");
}

void Storage::adopt(Storage& other) {
  MT_CHECK(!data_ && other.bytes_ == bytes_, bytes_, " bytes take over ", other.bytes_);
  data_ = std::exchange(other.data_, nullptr);
  memory_ = std::exchange(other.memory_, nullptr);
  use_ = other.use_;
}

namespace {
Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}
}  // namespace

Tensor::Tensor(ExecutionContext& ctx, const Shape& shape, DType dtype)
    : storage_(std::make_shared<Storage>(ctx, static_cast<size_t>(shape.numel()) * size_of(dtype))),
      shape_(shape),
      strides_(contiguous_strides(shape)),
      dtype_(dtype) {}

Tensor::Tensor(ExecutionContext& ctx, const Shape& shape, DType dtype, std::shared_ptr<void> memory)
    : storage_(std::make_shared<Storage>(ctx, static_cast<size_t>(shape.numel()) * size_of(dtype),
                                         std::move(memory))),
      shape_(shape),
      strides_(contiguous_strides(shape)),
      dtype_(dtype) {}

bool Tensor::contiguous() const {
  int64_t step = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

Tensor Tensor::view(const Shape& shape) const {
  MT_CHECK(contiguous(), shape_);
  MT_CHECK(shape.numel() == numel(), shape_, " as ", shape);
  Tensor out = *this;
  out.shape_ = shape;
  out.strides_ = contiguous_strides(shape);
  out.placement_.reset();
  return out;
}

Tensor Tensor::slice(int dim, int64_t lo, int64_t hi) const {
  MT_CHECK(0 <= lo && lo <= hi && hi <= shape_[dim], "[", lo, ", ", hi, ") of ", shape_);
  Tensor out = *this;
  out.offset_ += lo * strides_[dim];
  out.shape_[dim] = hi - lo;
  out.placement_.reset();
  return out;
}

Tensor Tensor::detach() const {
  Tensor out = *this;
  out.node_.reset();
  return out;
}

}  // namespace mtrain
