#include "mtrain/tensor/execution_context.h"

namespace mtrain {

ExecutionContext::ExecutionContext(Backend& backend, Device device, uint64_t seed)
    : backend_(backend),
      device_(device),
      stream_(backend.stream(device)),
      memory_(backend, device),
      seed_(seed) {}

void ExecutionContext::set_profile(Profile* profile) {
  if (profile) stream_->synchronize();  // earlier work is not the first call's
  profile_ = profile;
  stream_->set_profile(profile);
}

Tensor ExecutionContext::zeros(const Shape& shape, DType dtype) {
  Tensor out = empty(shape, dtype);
  fill_zero(out);
  return out;
}

void ExecutionContext::fill_zero(const Tensor& t) {
  MT_CHECK(t.contiguous(), t.shape());
  backend_.fill_zero(*stream_, t.raw(), static_cast<size_t>(t.numel()) * size_of(t.dtype()));
}

void ExecutionContext::upload(const Tensor& to, const void* from) {
  MT_CHECK(to.contiguous(), to.shape());
  backend_.copy(*stream_, to.raw(), from, static_cast<size_t>(to.numel()) * size_of(to.dtype()));
}

void ExecutionContext::download(const Tensor& from, void* to) {
  MT_CHECK(from.contiguous(), from.shape());
  backend_.copy(*stream_, to, from.raw(),
                static_cast<size_t>(from.numel()) * size_of(from.dtype()));
  stream_->synchronize();
}

namespace {
void cast(const Tensor& dst, const Tensor& src, bool accumulate) {
  MT_CHECK_EQ(dst.numel(), src.numel());
  MT_CHECK(dst.contiguous() && src.contiguous(), dst.shape(), src.shape());
  ExecutionContext& ctx = dst.context();
  ctx.kernels().cast(ctx.stream(), {.src = src.raw(),
                                    .dst = dst.raw(),
                                    .count = dst.numel(),
                                    .scale = 1,
                                    .accumulate = accumulate,
                                    .src_dtype = src.dtype(),
                                    .dst_dtype = dst.dtype()});
}
}  // namespace

void ExecutionContext::copy(const Tensor& dst, const Tensor& src) { cast(dst, src, false); }
void ExecutionContext::accumulate(const Tensor& dst, const Tensor& src) { cast(dst, src, true); }

void ExecutionContext::fill(const Tensor& t, float value) {
  MT_CHECK(t.contiguous(), t.shape());
  if (!backend_.computes()) return;
  std::vector<float> values(static_cast<size_t>(t.numel()), value);
  if (t.dtype() == DType::f32) return upload(t, values.data());
  copy(t, from_host<float>(values, t.shape()));
}

}  // namespace mtrain
