// Buffers of tensors.
#include "mtrain/comm/call.h"
#include "mtrain/tensor/run.h"

namespace mtrain {

namespace {
Run* device_of(const Tensor& t) {
  MT_CHECK(t.contiguous(), t.shape());
  return t.run().backend().host_memory() ? nullptr : &t.run();
}
}  // namespace

ConstBuffer::ConstBuffer(const Tensor& t)
    : data(t.raw()), count(t.numel()), dtype(t.dtype()), run(device_of(t)) {}
Buffer::Buffer(const Tensor& t)
    : data(t.raw()), count(t.numel()), dtype(t.dtype()), run(device_of(t)) {}

}  // namespace mtrain
