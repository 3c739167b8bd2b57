// Buffers of tensors.
#include "mtrain/comm/call.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

namespace {
ExecutionContext* device_of(const Tensor& t) {
  MT_CHECK(t.contiguous(), t.shape());
  return t.context().backend().host_memory() ? nullptr : &t.context();
}
}  // namespace

ConstBuffer::ConstBuffer(const Tensor& t)
    : data(t.raw()), count(t.numel()), dtype(t.dtype()), ctx(device_of(t)) {}
Buffer::Buffer(const Tensor& t)
    : data(t.raw()), count(t.numel()), dtype(t.dtype()), ctx(device_of(t)) {}

}  // namespace mtrain
