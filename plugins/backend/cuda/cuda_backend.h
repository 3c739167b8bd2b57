// The CUDA backend of one rank. Owns a pool of device memory, a pool of page-locked memory, and the
// kernel table. Nothing is opened before the first memory or stream is requested, so it can be
// created on a machine without a GPU. Thread-safe.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "device_pool.h"
#include "mtrain/tensor/device_backend.h"
#include "pinned_pool.h"
#include "recording_device.h"
#include "runtime_api.h"

namespace mtrain::cuda {

class CudaStream;

class CudaBackend : public DeviceBackend {
 public:
  explicit CudaBackend(const BackendContext& context = {});
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  Probe probe() const override { return verdict().probe; }
  Bf16Products bf16_products() const override;
  std::string remedy() const override { return verdict().remedy; }
  std::vector<std::string> describe() const override {
    return describe_devices(verdict().probe.devices);
  }
  void* allocate(Device device, size_t bytes) override;
  void deallocate(Device device, void* data, size_t bytes) override;
  size_t free_memory(Device device) const override;
  std::unique_ptr<Stream> stream(Device device) override;
  std::unique_ptr<Stream> copy_stream(Device device) override;
  const KernelTable& kernels() const override;
  bool host_memory() const override { return false; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;

  bool tf32() const { return context_.tf32; }
  bool any_order_attention() const { return context_.any_order_attention; }

  /// For CudaStream: stream-ordered memory. take() throws Error(config) that names `use` if there
  /// is none left.
  void* take(size_t bytes, cudaStream_t stream, const char* use);
  void give(void* data, cudaStream_t stream);
  /// Page-locked host memory; see PinnedPool.
  void* take_pinned();
  void give_pinned(void* piece, cudaStream_t stream);
  /// Call them when a stream for kernels is created, and before any stream is destroyed.
  void opened(CudaStream& stream);
  void closed(CudaStream& stream);
  DevicePool::Figures figures() const;
  GraphApi& graphs() { return graphs_; }
  DeviceApi& device() { return api_; }

 private:
  const Verdict& verdict() const;
  void order(cudaStream_t first, cudaStream_t then);

  BackendContext context_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Verdict> verdict_;
  mutable RuntimeApi api_;
  RuntimeGraphs graphs_;
  RecordingDevice recording_;     // the device as the pools see it
  mutable std::once_flag asked_;  // whether the supported low-precision formats were queried
  mutable KernelTable kernels_;
  DevicePool pool_;
  PinnedPool pinned_;
  std::vector<CudaStream*> streams_;  // live streams; tensor memory is ordered on the first one
  EventHandle ordering_ = nullptr;
};

}  // namespace mtrain::cuda
