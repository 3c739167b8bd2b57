#include "cuda_backend.h"

#include <algorithm>

#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"
#include "table.h"

namespace mtrain::cuda {

namespace {
constexpr size_t kPinnedLimit = size_t{64} << 20;
}

CudaBackend::CudaBackend(const BackendContext& context)
    : context_(context),
      recording_(api_),
      kernels_(cuda_kernels()),
      pool_(recording_),
      pinned_(recording_, kPinnedLimit) {}

CudaBackend::~CudaBackend() {
  if (ordering_) api_.free_event(ordering_);
}

const Verdict& CudaBackend::verdict() const {
  std::lock_guard lock(mutex_);
  if (!verdict_) verdict_ = std::make_unique<Verdict>(judge(ask_machine()));
  return *verdict_;
}

Bf16Products CudaBackend::bf16_products() const {
  constexpr int kFirstWithBf16 = 80;  // Ampere
  if (probe().devices == 0) return Backend::bf16_products();
  if (architecture_of(0) < kFirstWithBf16) return {false, "this GPU has no bf16 arithmetic"};
  return {true, "this GPU has bf16 arithmetic"};
}

const KernelTable& CudaBackend::kernels() const {
  std::call_once(asked_, [&] {
    int devices = verdict().probe.devices;
    kernels_.quant_scales = devices > 0 ? ~0u : 0;
    for (int device = 0; device < devices; ++device)
      kernels_.quant_scales &= quant_scales_of(architecture_of(device));
  });
  return kernels_;
}

// Work queued on `then` from now on runs after the work queued on `first` so far.
void CudaBackend::order(cudaStream_t first, cudaStream_t then) {
  if (first == then) return;
  if (!ordering_) ordering_ = api_.make_event();
  recording_.record(ordering_, first);
  recording_.wait_on_stream(then, ordering_);
}

void* CudaBackend::take(size_t bytes, cudaStream_t stream, const char* use) {
  std::lock_guard lock(mutex_);
  if (void* data = pool_.take(bytes, stream)) return data;
  size_t free = 0, total = 0;
  api_.memory(free, total);
  throw Error(
      ErrorClass::config,
      cat("out of GPU memory: need ", human_bytes(bytes), use ? cat(" for ", use) : "", ", ",
          human_bytes(free), " free of ", human_bytes(total), ", ",
          human_bytes(pool_.figures().in_use), " in use by this rank"),
      "make train.micro_batch_size or model.seq_length smaller, or set model.recompute=full");
}

void CudaBackend::give(void* data, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  pool_.give(data, stream);
}

void* CudaBackend::take_pinned() {
  std::lock_guard lock(mutex_);
  return pinned_.take();
}
void CudaBackend::give_pinned(void* piece, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  pinned_.give(piece, stream);
}

void CudaBackend::opened(CudaStream& stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(&stream);
  recording_.add(stream.recorder());
}
void CudaBackend::closed(CudaStream& stream) {
  std::lock_guard lock(mutex_);
  std::erase(streams_, &stream);
  recording_.remove(stream.recorder());
  pool_.retire(stream.raw());
}

DevicePool::Figures CudaBackend::figures() const {
  std::lock_guard lock(mutex_);
  return pool_.figures();
}

// Tensor memory is ordered on the first stream. Other streams wait for it here, and it waits for
// them in deallocate(). With one stream, the usual case, both cost nothing.
void* CudaBackend::allocate(Device device, size_t bytes) {
  MT_CUDA(cudaSetDevice(device.index));
  cudaStream_t home = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!streams_.empty()) home = streams_.front()->raw();
  }
  void* data = take(bytes, home, nullptr);
  std::lock_guard lock(mutex_);
  for (CudaStream* s : streams_) order(home, s->raw());
  return data;
}

void CudaBackend::deallocate(Device, void* data, size_t) {
  for (CudaStream* s : streams_) s->settle();  // calls that are held back may still use it
  std::lock_guard lock(mutex_);
  cudaStream_t home = streams_.empty() ? nullptr : streams_.front()->raw();
  for (CudaStream* s : streams_) order(s->raw(), home);
  pool_.give(data, home);
}

size_t CudaBackend::free_memory(Device device) const {
  MT_CUDA(cudaSetDevice(device.index));
  size_t free = 0, total = 0;
  api_.memory(free, total);
  DevicePool::Figures held = figures();
  return free + held.reserved - held.in_use;
}

std::unique_ptr<Stream> CudaBackend::stream(Device device) {
  return std::make_unique<CudaStream>(*this, device.index);
}
std::unique_ptr<Stream> CudaBackend::copy_stream(Device device) {
  return std::make_unique<CudaStream>(*this, device.index, StreamUse::copies);
}

namespace {
bool is_device_memory(const void* data) {
  cudaPointerAttributes attributes{};
  MT_CUDA(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}
}  // namespace

void CudaBackend::copy(Stream& stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  CudaStream& s = cuda_stream(stream);
  bool to_device = is_device_memory(to), from_device = is_device_memory(from);
  if (to_device && !from_device) return s.upload(to, from, bytes);
  if (!to_device) return s.download(to, from, bytes);
  MT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s.handle()));
}

void CudaBackend::fill_zero(Stream& stream, void* data, size_t bytes) {
  if (bytes > 0) MT_CUDA(cudaMemsetAsync(data, 0, bytes, cuda_stream(stream).handle()));
}

}  // namespace mtrain::cuda
